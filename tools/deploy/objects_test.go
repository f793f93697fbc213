package deploy_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/santhosh-tekuri/jsonschema/v6"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/openapi/openapitest"
	"sigs.k8s.io/yaml"
)

// decode reads objects as their own types, which must have every field, and holds them against the schemas of
// Kubernetes where the module has them.
func decode(t *testing.T, files map[string]string) *rendered {
	t.Helper()
	r := &rendered{}
	for name, text := range files {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if len(bytes.TrimSpace(document)) > 0 {
				r.add(t, name, document)
			}
		}
	}
	return r
}

func (r *rendered) add(t *testing.T, name string, document []byte) {
	t.Helper()
	var of struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(document, &of); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, document)
	}
	if of.Kind == "" {
		return // nothing but comments
	}
	object := map[string]any{
		"apps/v1 Deployment": &apps.Deployment{}, "batch/v1 Job": &batch.Job{}, "v1 Service": &core.Service{},
		"v1 ConfigMap": &core.ConfigMap{}, "policy/v1 PodDisruptionBudget": &policy.PodDisruptionBudget{},
		"networking.k8s.io/v1 NetworkPolicy":      &networking.NetworkPolicy{},
		"monitoring.coreos.com/v1 ServiceMonitor": &monitoring.ServiceMonitor{},
		"monitoring.coreos.com/v1 PrometheusRule": &monitoring.PrometheusRule{},
	}[of.APIVersion+" "+of.Kind]
	if object == nil {
		t.Fatalf("%s: nobody knows %s %s", name, of.APIVersion, of.Kind)
	}
	if err := yaml.UnmarshalStrict(document, object); err != nil {
		t.Errorf("%s: %s: %v\n%s", name, of.Kind, err, document)
	}
	checkSchema(t, of.APIVersion, of.Kind, document)
	r.kinds = append(r.kinds, of.Kind)
	switch o := object.(type) {
	case *apps.Deployment:
		r.deployments = append(r.deployments, o)
	case *batch.Job:
		r.jobs = append(r.jobs, o)
	case *core.Service:
		r.services = append(r.services, o)
	case *policy.PodDisruptionBudget:
		r.budgets = append(r.budgets, o)
	}
}

// schemas are Kubernetes' OpenAPI documents that its own client is tested with, by version of the API.
var schemas = map[string]string{"v1": "api/v1", "apps/v1": "apis/apps/v1", "batch/v1": "apis/batch/v1"}

func checkSchema(t *testing.T, version, kind string, document []byte) {
	t.Helper()
	path, ok := schemas[version]
	if !ok {
		return
	}
	paths, err := openapitest.NewEmbeddedFileClient().Paths()
	if err != nil {
		t.Fatal(err)
	}
	text, err := paths[path].Schema("application/json")
	if err != nil {
		t.Fatal(err)
	}
	api, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	const address = "file:///kubernetes.json"
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(address, api); err != nil {
		t.Fatal(err)
	}
	group, _, _ := strings.Cut("core/"+version, "/v1")
	group = group[strings.LastIndex(group, "/")+1:]
	schema, err := compiler.Compile(address + "#/components/schemas/io.k8s.api." + group + ".v1." + kind)
	if err != nil {
		t.Fatal(err)
	}
	text, err = yaml.YAMLToJSON(document)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s: %v\n%s", kind, err, document)
	}
}
