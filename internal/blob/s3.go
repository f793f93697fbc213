package blob

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"golang.org/x/sync/errgroup"
)

const (
	// dialTimeout, answerTimeout and requestTimeout bound what a store that hangs holds up: until it is connected,
	// until it begins to answer, and with its body.
	dialTimeout    = 3 * time.Second
	answerTimeout  = 10 * time.Second
	requestTimeout = 30 * time.Second
	// tries is how often a request is made in all; who asked tries again much later.
	tries = 2
	// together is how many objects are deleted at once. Each has a request of its own: not every server takes lists
	// of them.
	together = 8
)

// s3Store is a bucket, or what is behind a prefix of it.
type s3Store struct {
	client         *s3.Client
	bucket, prefix string
}

// Open returns the store of an address: s3://bucket/prefix?endpoint=URL&region=NAME&path_style=true, of which all but
// the bucket may be left out. Its keys are in the environment, as the AWS tools have them. It asks the store for
// nothing yet.
func Open(address string) (Store, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "s3" || u.Host == "" {
		return nil, errors.New("the store of large bodies has no address such as " +
			"s3://bucket/prefix?region=eu-central-1")
	}
	if u.User != nil {
		return nil, errors.New("the address of the store of large bodies has keys: " +
			"set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the address of the store of large bodies has settings that cannot be read")
	}
	for name := range q {
		if name != "endpoint" && name != "region" && name != "path_style" {
			return nil, fmt.Errorf("the store of large bodies has no setting %q: "+
				"there are endpoint, region and path_style", name)
		}
	}
	pathStyle, err := strconv.ParseBool(cmp.Or(q.Get("path_style"), "false"))
	if err != nil {
		return nil, errors.New("path_style of the store of large bodies is neither true nor false")
	}
	opts := s3.Options{
		Region:       cmp.Or(q.Get("region"), os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"), "us-east-1"),
		UsePathStyle: pathStyle,
		Credentials:  aws.CredentialsProviderFunc(environment),
		HTTPClient:   client(),
		Retryer:      retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts = tries }),
		// Servers that others wrote refuse what is newer than the signature.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	}
	if e := q.Get("endpoint"); e != "" {
		if at, err := url.Parse(e); err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
			return nil, errors.New("endpoint of the store of large bodies is no URL such as https://s3.example.com")
		}
		opts.BaseEndpoint = &e
	}
	if _, err := environment(context.Background()); err != nil {
		return nil, err
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		prefix += "/"
	}
	return &s3Store{s3.New(opts), u.Host, prefix}, nil
}

// environment reads the keys anew for each request that signs: a process that is given others need not be started
// again.
func environment(context.Context) (aws.Credentials, error) {
	c := aws.Credentials{AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"),
		SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
		SessionToken:    os.Getenv("AWS_SESSION_TOKEN"), Source: "environment"}
	if c.AccessKeyID == "" || c.SecretAccessKey == "" {
		return aws.Credentials{}, errors.New(
			"the store of large bodies has no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	return c, nil
}

func client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, TLSHandshakeTimeout: dialTimeout,
		ResponseHeaderTimeout: answerTimeout, MaxIdleConnsPerHost: 2 * together, IdleConnTimeout: time.Minute,
		ForceAttemptHTTP2: true,
	}}
}

// Put implements Store.
func (s *s3Store) Put(ctx context.Context, key string, body []byte) error {
	within, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	size := int64(len(body))
	_, err := s.client.PutObject(within, &s3.PutObjectInput{
		Bucket: &s.bucket, Key: new(s.prefix + key), Body: bytes.NewReader(body), ContentLength: &size,
	})
	if err != nil {
		return unavailable(ctx, "write "+key, err)
	}
	return nil
}

// Get implements Store.
func (s *s3Store) Get(ctx context.Context, key string, off, n int64) ([]byte, error) {
	within, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out, err := s.client.GetObject(within, &s3.GetObjectInput{
		Bucket: &s.bucket, Key: new(s.prefix + key), Range: new(fmt.Sprintf("bytes=%d-%d", off, off+n-1)),
	})
	switch status(err) {
	case http.StatusNotFound:
		return nil, fmt.Errorf("%s: %w", key, ErrNotFound)
	case http.StatusRequestedRangeNotSatisfiable:
		return nil, nil // it ends before
	}
	if err != nil {
		return nil, unavailable(ctx, "read "+key, err)
	}
	defer out.Body.Close()
	if out.ContentRange == nil || out.ContentLength == nil {
		return nil, unavailable(ctx, "read "+key, errors.New("the server heeds no ranges"))
	}
	body := make([]byte, min(n, aws.ToInt64(out.ContentLength)))
	if _, err := io.ReadFull(out.Body, body); err != nil {
		return nil, unavailable(ctx, "read "+key, err)
	}
	return body, nil
}

// status is that of an answer that is an error, 0 for none.
func status(err error) int {
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}

// Delete implements Store.
func (s *s3Store) Delete(ctx context.Context, keys ...string) error {
	group, each := errgroup.WithContext(ctx)
	group.SetLimit(together)
	for _, key := range keys {
		group.Go(func() error {
			within, cancel := context.WithTimeout(each, requestTimeout)
			defer cancel()
			_, err := s.client.DeleteObject(within, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: new(s.prefix + key)})
			if err != nil && status(err) != http.StatusNotFound {
				return unavailable(ctx, "delete "+key, err)
			}
			return nil
		})
	}
	return group.Wait() //nolint:wrapcheck // says everything
}

// List implements Store.
func (s *s3Store) List(ctx context.Context, prefix, behind string, most int) ([]string, error) {
	within, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: new(s.prefix + prefix)}
	in.MaxKeys = new(int32(most)) //nolint:gosec // some
	if behind != "" {
		in.StartAfter = new(s.prefix + behind)
	}
	out, err := s.client.ListObjectsV2(within, in)
	if err != nil {
		return nil, unavailable(ctx, "list bodies", err)
	}
	keys := make([]string, len(out.Contents))
	for i, o := range out.Contents {
		keys[i] = strings.TrimPrefix(aws.ToString(o.Key), s.prefix)
	}
	return keys, nil
}
