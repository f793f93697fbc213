package deploy_test

import (
	"bufio"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	sigsyaml "sigs.k8s.io/yaml"
)

// asked are requests at the host that all cells share, each with the cell that has to get it.
var asked = []struct{ key, path, cell string }{
	{"flow_" + strings.Repeat("A", 49), "/v1/account/me", "cell0"},
	{"flow_c1_" + strings.Repeat("A", 49), "/v1/account/me", "cell1"},
	{"flow_c1_" + strings.Repeat("A", 49), "/v1/flows/batches/01a22121-07d0-7d8f-b9e7-2cc63ca2b000", "cell1"},
	{"flow_" + strings.Repeat("A", 49), "/v1/flows/batches/01a22121-07d0-7d8f-b9e7-2cc63ca2b001", "cell0"},
	{"", "/v1/flows/webhooks/standard/786b741f44698b6cda128a5916bf9001", "cell1"},
	{"", "/v1/flows/webhooks/standard/786b741f44698b6cda128a5916bf9000", "cell0"},
	{"", "/v1/flows/batches/01a22121-07d0-7d8f-b9e7-2cc63ca2b001/stream", "cell1"},
	{"", "/v1/flows/executions/01a22121-07d0-7d8f-b9e7-2cc63ca2b001.12.1/stream", "cell1"},
	{"", "/v1/flows/executions/01a22121-07d0-7d8f-b9e7-2cc63ca2b000.12.1/stream", "cell0"},
	{"", "/v1/catalog/platforms", "cell0"},
}

// whole reports whether a regular expression matches all of a text, as Envoy and the Gateway API mean it.
func whole(t *testing.T, pattern, text string) bool {
	t.Helper()
	re, err := regexp.Compile("^(?:" + pattern + ")$")
	if err != nil {
		t.Fatal(err)
	}
	return re.MatchString(text)
}

// TestCells_Envoy: the routes are known by their fields, in the order in which Envoy takes them.
func TestCells_Envoy(t *testing.T) {
	t.Parallel()
	type match struct {
		Prefix    string                  `json:"prefix"`
		SafeRegex *struct{ Regex string } `json:"safe_regex"`
		Headers   []struct {
			Name        string
			StringMatch struct {
				SafeRegex struct{ Regex string } `json:"safe_regex"`
			} `json:"string_match"`
		} `json:"headers"`
	}
	var config struct {
		StaticResources struct {
			Listeners []struct {
				FilterChains []struct {
					Filters []struct {
						TypedConfig struct {
							RouteConfig struct {
								VirtualHosts []struct {
									Name    string
									Domains []string
									Routes  []struct {
										Match match
										Route struct {
											Cluster                string
											InternalRedirectPolicy struct {
												RedirectResponseCodes []int `json:"redirect_response_codes"`
											} `json:"internal_redirect_policy"`
										}
									}
								} `json:"virtual_hosts"`
							} `json:"route_config"`
						} `json:"typed_config"`
					}
				} `json:"filter_chains"`
			}
			Clusters []struct{ Name string }
		} `json:"static_resources"`
	}
	if err := sigsyaml.Unmarshal([]byte(read(t, "cells/envoy.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	var clusters []string
	for _, c := range config.StaticResources.Clusters {
		clusters = append(clusters, c.Name)
	}
	hosts := config.StaticResources.Listeners[0].FilterChains[0].Filters[0].TypedConfig.RouteConfig.VirtualHosts
	for _, h := range hosts {
		for _, r := range h.Routes {
			if !slices.Contains(clusters, r.Route.Cluster) || !slices.Equal(r.Route.InternalRedirectPolicy.RedirectResponseCodes, []int{307}) {
				t.Errorf("%s: a route leads to %+v", h.Name, r.Route)
			}
		}
	}
	for _, a := range asked {
		var got string
		for _, r := range hosts[0].Routes {
			m := r.Match
			if m.Prefix == "" && (m.SafeRegex == nil || !whole(t, m.SafeRegex.Regex, a.path)) ||
				len(m.Headers) > 0 && !whole(t, m.Headers[0].StringMatch.SafeRegex.Regex, a.key) {
				continue
			}
			got = r.Route.Cluster
			break
		}
		if got != a.cell {
			t.Errorf("Envoy sends %s with the key %q to %q, not to %s", a.path, a.key, got, a.cell)
		}
	}
}

// TestCells_Gateway: the routes are what the types of the Gateway API know; a key and a webhook's address find their
// cell.
func TestCells_Gateway(t *testing.T) {
	t.Parallel()
	docs := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(read(t, "cells/gateway.yaml"))))
	var routes []gateway.HTTPRoute
	for {
		text, err := docs.Read()
		if err == io.EOF {
			break
		}
		var r gateway.HTTPRoute
		if err := sigsyaml.UnmarshalStrict(text, &r); err != nil {
			t.Fatal(err)
		}
		if r.Kind != "HTTPRoute" || r.APIVersion != gateway.GroupVersion.String() {
			t.Errorf("%s is a %s of %s", r.Name, r.Kind, r.APIVersion)
		}
		routes = append(routes, r)
	}
	for _, a := range asked {
		if a.key == "" && !strings.HasPrefix(a.path, "/v1/flows/webhooks/standard/") {
			continue // ids decide nothing here
		}
		got := "cell0"
		for _, r := range routes {
			if !slices.Contains(r.Spec.Hostnames, "flows.example.com") {
				continue
			}
			for _, rule := range r.Spec.Rules {
				for _, m := range rule.Matches {
					path := m.Path != nil && *m.Path.Type == gateway.PathMatchRegularExpression && whole(t, *m.Path.Value, a.path)
					if path || len(m.Headers) > 0 && whole(t, m.Headers[0].Value, a.key) {
						got = r.Namespace
					}
				}
			}
		}
		if got != a.cell {
			t.Errorf("the Gateway sends %s with the key %q to %s, not to %s", a.path, a.key, got, a.cell)
		}
	}
}
