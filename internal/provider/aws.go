package provider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const (
	awsAlgorithm = "AWS4-HMAC-SHA256"
	// awsRegion is where a credential without a region calls.
	awsRegion = "us-east-1"
	// awsService is what signatures are made for: the services that the catalog knows speak S3's protocol.
	awsService = "s3"
)

var regionName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// newAWSKey is the secret of aws_access_key: each request is signed (Signature Version 4) when it goes out.
func newAWSKey(spec Spec) (secret, error) {
	keys := aws.Credentials{
		AccessKeyID: spec.Fields["access_key_id"], SecretAccessKey: spec.Fields["secret_access_key"], SessionToken: spec.Fields["session_token"],
	}
	if keys.AccessKeyID == "" || keys.SecretAccessKey == "" {
		return secret{}, fmt.Errorf("%w: aws_access_key needs access_key_id and secret_access_key", ErrSecretShape)
	}
	region := regionOf(spec)
	if !regionName.MatchString(region) {
		return secret{}, fmt.Errorf("%w: aws_region must be a name such as eu-central-1", ErrSecretShape)
	}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	return secret{
		mask:    newMask(keys.SecretAccessKey, keys.SessionToken),
		address: awsAddress(spec), defaults: awsDefaults(spec),
		signed: []string{"Authorization", "X-Amz-Date", "X-Amz-Content-Sha256", "X-Amz-Security-Token"},
		sign: func(ctx context.Context, s *Sender, r *Request) error {
			u, err := url.Parse(r.URL)
			if err != nil {
				return probeError(InvalidShape, nil, "The address is malformed.")
			}
			h := sha256.New()
			for _, part := range r.Body {
				h.Write(part)
			}
			digest := hex.EncodeToString(h.Sum(nil))
			r.Header.Set("X-Amz-Content-Sha256", digest)
			// What proxies may change is not signed.
			signed := &http.Request{Method: r.Method, URL: u, Host: u.Host, Header: r.Header.Clone(), ContentLength: r.Size()}
			signed.Header.Del("Accept")
			if err := signer.SignHTTP(ctx, keys, signed, digest, awsService, region, s.now()); err != nil {
				return probeError(InvalidShape, nil, "The keys cannot sign; rotate the credential.")
			}
			for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token"} {
				if value := signed.Header.Get(name); value != "" {
					r.Header.Set(name, value)
				}
			}
			_, signature, _ := strings.Cut(r.Header.Get("Authorization"), "Signature=")
			r.masks = append(r.masks, newMask(signature))
			return nil
		},
	}, nil
}

func regionOf(spec Spec) string {
	if spec.Region == "" {
		return awsRegion
	}
	return spec.Region
}

// awsDefaults are the parameters that a credential stands in for.
func awsDefaults(spec Spec) map[string]string {
	if spec.Bucket == "" {
		return nil
	}
	return map[string]string{"bucket": spec.Bucket}
}

// awsAddress puts the credential's endpoint, where it has one, into an address, and keeps the slashes of keys.
func awsAddress(spec Spec) func(string) (string, error) {
	endpoint := spec.Endpoint
	return func(address string) (string, error) {
		u, err := url.Parse(address)
		if err != nil {
			return "", fmt.Errorf("%w: the address is malformed", ErrParams)
		}
		path := strings.ReplaceAll(u.EscapedPath(), "%2F", "/")
		for _, segment := range strings.Split(path, "/") {
			if segment == "." || segment == ".." {
				return "", fmt.Errorf("%w: a part of a key must not be \".\" or \"..\"", ErrParams)
			}
		}
		origin := u.Scheme + "://" + u.Host
		if endpoint != "" {
			origin = Origin(endpoint)
		}
		if u.RawQuery != "" {
			path += "?" + u.RawQuery
		}
		return origin + path, nil
	}
}
