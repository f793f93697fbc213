package provider

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// awsScope is what a signature of AWS is made for; what is empty is not known.
type awsScope struct{ service, region string }

var (
	// awsName is that of a service or a region.
	awsName    = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	hostRegion = regexp.MustCompile(`^[a-z]{2}(-[a-z]+)+-[0-9]+$`)
)

// awsDomains are those of AWS's own addresses.
var awsDomains = []string{".amazonaws.com", ".amazonaws.com.cn", ".api.aws", ".on.aws"}

// awsAliases are the services whose hosts are called otherwise than they are in signatures.
var awsAliases = map[string]string{
	"email": "ses", "queue": "sqs", "lambda-url": "lambda", "bedrock-runtime": "bedrock",
	"bedrock-agent-runtime": "bedrock",
	"s3-accesspoint":        "s3", "s3-control": "s3",
}

// awsHost reads service and region off a host of AWS, such as sqs.eu-central-1.amazonaws.com; one without a region is
// of us-east-1. Both are empty for other hosts.
func awsHost(host string) (of awsScope) {
	i := slices.IndexFunc(awsDomains, func(d string) bool { return strings.HasSuffix(strings.ToLower(host), d) })
	if i < 0 {
		return of
	}
	labels := strings.Split(strings.TrimSuffix(strings.ToLower(host), awsDomains[i]), ".")
	labels = slices.DeleteFunc(labels, func(l string) bool { return l == "vpce" || l == "dualstack" })
	at := slices.IndexFunc(labels, hostRegion.MatchString)
	switch last := len(labels) - 1; {
	case last < 0:
		return of
	case at < 0:
		of = awsScope{labels[last], awsRegion}
		if region, old := strings.CutPrefix(labels[last], "s3-"); old && hostRegion.MatchString(region) {
			of = awsScope{"s3", region}
		}
	case at < last:
		of = awsScope{labels[at+1], labels[at]}
	case at > 0:
		of = awsScope{labels[at-1], labels[at]}
	}
	of.service = strings.TrimSuffix(of.service, "-fips")
	of.service = cmp.Or(awsAliases[of.service], of.service)
	return of
}

// awsPlace says what a request is signed for: what the call says, then the catalog, the credential, and last the host.
// The credential's endpoint, where it has one, comes into the address, and the keys of objects keep their slashes.
func awsPlace(spec *Spec) func(r *Request) error {
	endpoint, catalogs, own := spec.Endpoint, spec.SignIn.AWSService, awsScope{spec.Service, spec.Region}
	return func(r *Request) error {
		u, err := url.Parse(r.URL)
		if err != nil {
			return fmt.Errorf("%w: the address is malformed", ErrParams)
		}
		host := awsHost(u.Hostname())
		r.aws = awsScope{
			cmp.Or(r.aws.service, catalogs, own.service, host.service), cmp.Or(r.aws.region, own.region, host.region,
				awsRegion),
		}
		switch {
		case r.aws.service == "":
			return fmt.Errorf("%w: the address does not tell its service of AWS; "+
				"name it in aws_service of the call or of the credential", ErrParams)
		case !awsName.MatchString(r.aws.service) || !awsName.MatchString(r.aws.region):
			return fmt.Errorf("%w: aws_service and aws_region must be names such as sqs and eu-central-1", ErrParams)
		}
		path := u.EscapedPath()
		if r.aws.objects() {
			path = strings.ReplaceAll(path, "%2F", "/")
		}
		for _, segment := range strings.Split(path, "/") {
			if segment == "." || segment == ".." {
				return fmt.Errorf("%w: a part of a path must not be \".\" or \"..\"", ErrParams)
			}
		}
		origin := u.Scheme + "://" + u.Host
		if endpoint != "" {
			origin = Origin(endpoint)
		}
		if u.RawQuery != "" {
			path += "?" + u.RawQuery
		}
		r.URL = origin + path
		return nil
	}
}

// objects tells a store of objects, whose paths are signed as they are.
func (of awsScope) objects() bool { return of.service == "s3" || strings.HasPrefix(of.service, "s3-") }
