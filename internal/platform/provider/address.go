package provider

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"strings"

	"flowlane/internal/platform/catalog"
)

// known are the texts that fill the labels of addresses.
func (spec *Spec) known() catalog.Known {
	return catalog.Known{Fields: spec.Fields, Settings: map[string]string{"aws_region": spec.Region}}
}

// base is the base URL of a service with the labels that the secret fills. The error wraps ErrSecretShape.
func (s Secret) base(svc *catalog.Service) (string, error) {
	base, err := svc.Address(s.open().known)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrSecretShape, err)
	}
	return base, nil
}

// label is the value of a label, as it stands in an address. The error wraps ErrSecretShape.
func (s Secret) label(svc *catalog.Service, name string) (string, error) {
	const scheme = "https://"
	address, err := svc.Located(scheme+"{"+name+"}", s.open().known)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrSecretShape, err)
	}
	return strings.TrimPrefix(address, scheme), nil
}

// locate has a request go to the address that the answer with its token names, once it is signed.
func (in *secret) locate(svc *catalog.Service, r *Request) signer {
	if !strings.Contains(Origin(r.URL), catalog.Open) {
		return in.sign
	}
	return func(ctx context.Context, s *Sender, r *Request) error {
		if err := in.sign(ctx, s, r); err != nil {
			return err
		}
		known := in.known
		known.Token = map[string]string{}
		if r.token != nil {
			maps.Copy(known.Token, r.token.fields)
		}
		base, err := svc.Address(known)
		u, bad := url.Parse(r.URL)
		if err != nil || bad != nil {
			return probeError(InvalidShape, err, "The token endpoint's answer does not name an address like %s.",
				svc.BaseURL)
		}
		u.Host = strings.TrimPrefix(Origin(base), u.Scheme+"://")
		r.URL = u.String()
		return nil
	}
}
