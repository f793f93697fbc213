package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// TestAWS_Vectors signs requests of the test suite that AWS published for Signature Version 4.
func TestAWS_Vectors(t *testing.T) {
	t.Parallel()
	at := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
	keys := aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
	for name, tc := range map[string]struct{ method, path, want string }{
		"get-vanilla": {"GET", "/",
			"5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		"get-vanilla-query-order-key-case": {"GET", "/?Param2=value2&Param1=value1",
			"b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
		"get-vanilla-empty-query-key": {"GET", "/?Param1=value1",
			"a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
		"post-vanilla": {"POST", "/",
			"5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
		"post-vanilla-query": {"POST", "/?Param1=value1",
			"28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"},
	} {
		r, err := http.NewRequest(tc.method, "https://example.amazonaws.com"+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		empty := sha256.Sum256(nil)
		if err := (awsScope{"service", "us-east-1"}).sign(t.Context(), keys, r, hex.EncodeToString(empty[:]),
			at); err != nil {
			t.Fatal(err)
		}
		if got := r.Header.Get("Authorization"); !strings.HasSuffix(got, "Signature="+tc.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestAWSHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]awsScope{
		"sqs.eu-central-1.amazonaws.com":                  {"sqs", "eu-central-1"},
		"SQS.EU-central-1.amazonaws.com":                  {"sqs", "eu-central-1"},
		"iam.amazonaws.com":                               {"iam", "us-east-1"},
		"dynamodb.us-gov-west-1.amazonaws.com":            {"dynamodb", "us-gov-west-1"},
		"sqs-fips.us-east-2.amazonaws.com":                {"sqs", "us-east-2"},
		"ec2.cn-north-1.amazonaws.com.cn":                 {"ec2", "cn-north-1"},
		"abc123.execute-api.ap-southeast-2.amazonaws.com": {"execute-api", "ap-southeast-2"},
		"abc.lambda-url.eu-west-1.on.aws":                 {"lambda", "eu-west-1"},
		"search-x-abc.eu-west-1.es.amazonaws.com":         {"es", "eu-west-1"},
		"bucket.s3.eu-west-1.amazonaws.com":               {"s3", "eu-west-1"},
		"bucket.s3.amazonaws.com":                         {"s3", "us-east-1"},
		"s3-eu-west-1.amazonaws.com":                      {"s3", "eu-west-1"},
		"s3.dualstack.eu-west-1.amazonaws.com":            {"s3", "eu-west-1"},
		"vpce-1.sqs.us-east-1.vpce.amazonaws.com":         {"sqs", "us-east-1"},
		"email.us-east-1.amazonaws.com":                   {"ses", "us-east-1"},
		"bedrock-runtime.us-east-1.amazonaws.com":         {"bedrock", "us-east-1"},
		"lambda.eu-west-1.api.aws":                        {"lambda", "eu-west-1"},
		"eu-west-1.amazonaws.com":                         {},
		"api.example.com":                                 {},
		"sqs.eu-central-1.amazonaws.com.evil.example":     {},
		"127.0.0.1": {},
	} {
		if got := awsHost(host); got != want {
			t.Errorf("%s: %v, want %v", host, got, want)
		}
	}
}

// TestAWSPlace: what is nearer to the call decides what it is signed for.
func TestAWSPlace(t *testing.T) {
	t.Parallel()
	const sqs, other = "https://sqs.eu-west-1.amazonaws.com/q", "https://queue.example/q"
	for _, tc := range []struct {
		url       string
		call, own awsScope
		catalogs  string
		want      awsScope
	}{
		{sqs, awsScope{}, awsScope{}, "", awsScope{"sqs", "eu-west-1"}},
		{sqs, awsScope{}, awsScope{"sns", "us-west-2"}, "", awsScope{"sns", "us-west-2"}},
		{sqs, awsScope{}, awsScope{"sns", ""}, "s3", awsScope{"s3", "eu-west-1"}},
		{sqs, awsScope{"kms", "ap-east-1"}, awsScope{"sns", "us-west-2"}, "", awsScope{"kms", "ap-east-1"}},
		{other, awsScope{"", ""}, awsScope{"sns", ""}, "", awsScope{"sns", "us-east-1"}},
		{other, awsScope{}, awsScope{}, "", awsScope{}},
		{sqs, awsScope{"s3/x", ""}, awsScope{}, "", awsScope{}},
		{sqs + "/../x", awsScope{}, awsScope{}, "", awsScope{}},
	} {
		spec := Spec{Region: tc.own.region, Service: tc.own.service}
		spec.SignIn.AWSService = tc.catalogs
		r := Request{URL: tc.url, aws: tc.call}
		err := awsPlace(&spec)(&r)
		if tc.want == (awsScope{}) {
			if !errors.Is(err, ErrParams) {
				t.Errorf("%+v: %v", tc, err)
			}
		} else if err != nil || r.aws != tc.want || r.URL != tc.url {
			t.Errorf("%+v: %v, %s, %v", tc, r.aws, r.URL, err)
		}
	}
}
