package provider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const (
	awsAlgorithm = "AWS4-HMAC-SHA256"
	// awsRegion is where a credential without a region calls.
	awsRegion = "us-east-1"
)

// newAWSKey is the secret of aws_access_key: each request is signed (Signature Version 4) when it goes out.
func newAWSKey(spec Spec) (secret, error) {
	keys := aws.Credentials{
		AccessKeyID: spec.Fields["access_key_id"], SecretAccessKey: spec.Fields["secret_access_key"],
		SessionToken: spec.Fields["session_token"],
	}
	if keys.AccessKeyID == "" || keys.SecretAccessKey == "" {
		return secret{}, fmt.Errorf("%w: aws_access_key needs access_key_id and secret_access_key", ErrSecretShape)
	}
	for _, name := range []string{spec.Region, spec.Service} {
		if name != "" && !awsName.MatchString(name) {
			return secret{}, fmt.Errorf("%w: aws_region and aws_service must be names such as eu-central-1 and sqs",
				ErrSecretShape)
		}
	}
	return secret{
		mask:  newMask(keys.SecretAccessKey, keys.SessionToken),
		place: awsPlace(&spec), defaults: awsDefaults(spec),
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
			signed := &http.Request{Method: r.Method, URL: u, Host: u.Host, Header: r.Header.Clone(),
				ContentLength: r.Size()}
			signed.Header.Del("Accept")
			if err := r.aws.sign(ctx, keys, signed, digest, s.now()); err != nil {
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

// sign signs a request whose body has the digest. The path of one to a store of objects is signed as it is, others
// escaped again.
func (of awsScope) sign(ctx context.Context, keys aws.Credentials, r *http.Request, digest string, at time.Time) error {
	//nolint:wrapcheck // says everything
	return v4.NewSigner().SignHTTP(ctx, keys, r, digest, of.service, of.region, at,
		func(o *v4.SignerOptions) { o.DisableURIPathEscaping = of.objects() })
}

// awsDefaults are the parameters that a credential stands in for.
func awsDefaults(spec Spec) map[string]string {
	if spec.Bucket == "" {
		return nil
	}
	return map[string]string{"bucket": spec.Bucket}
}
