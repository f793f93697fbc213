package deploy_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

const chartFolder = deployFolder + "/helm/flowlane"

// installations are values with which the chart is tried: the least, and all that there is.
var installations = map[string]string{
	"least": `image: {repository: registry.example.com/flowlane, tag: "1"}`,
	"all": `
image:
  repository: registry.example.com/flowlane
  digest: "sha256:` + strings.Repeat("0", 64) + `"
  pullSecrets: [{name: pull}]
secret: {name: own, ownerDatabaseURL: owner-database-url}
settings: {FLOWLANE_PUBLIC_URL: "https://flows.acme.example/", FLOWLANE_POOLED: true, FLOWLANE_MAX_STREAMS: 500}
envFrom: [{secretRef: {name: bucket}}]
migrate: {runtimeRole: flowlane_runtime, cell: 3}
api: {replicas: 3, cpu: 2}
workers: {replicas: 1, cpu: "0.5"}
drainSeconds: 120
service: {type: LoadBalancer, port: 8080, annotations: {a: b}}
networkPolicy:
  apiFrom: [{namespaceSelector: {}}]
  metricsFrom: [{namespaceSelector: {matchLabels: {name: monitoring}}}]
  databaseTo: [{ipBlock: {cidr: 10.0.0.5/32}}]
  databasePorts: [5432, 6432]
  extraEgress: [{to: [{ipBlock: {cidr: 10.1.0.0/16}}]}]
serviceMonitor: {enabled: true, labels: {release: prometheus}}
alerts: {enabled: true, labels: {release: prometheus}}
dashboards: {enabled: true}
podAnnotations: {a: b}
nodeSelector: {disk: ssd}
tolerations: [{key: flowlane, operator: Exists}]
priorityClassName: high
`,
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func parse(t *testing.T, values string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// render returns what the chart makes with values, by file.
func render(t *testing.T, values string) (map[string]string, error) {
	t.Helper()
	c := load(t)
	capabilities := chartutil.DefaultCapabilities.Copy()
	all, err := chartutil.ToRenderValues(c, parse(t, values), chartutil.ReleaseOptions{Name: "acme", Namespace: "flows",
		Revision: 1, IsInstall: true}, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true, LintMode: false}.Render(c, all)
}

// TestChart_Lint is helm lint --strict.
func TestChart_Lint(t *testing.T) {
	t.Parallel()
	for name, values := range installations {
		for _, m := range lint.All(chartFolder, parse(t, values), "flows", true).Messages {
			if m.Severity >= support.WarningSev {
				t.Errorf("%s: %s", name, m)
			}
		}
	}
}

// TestChart_Schema: what the chart does not know is refused, and what it sets itself.
func TestChart_Schema(t *testing.T) {
	t.Parallel()
	const image = `image: {repository: r, tag: "1"}`
	for values, want := range map[string]string{
		``:                                  "image.repository",
		`image: {repository: r}`:            "image",
		image + "\napi: {replica: 2}":       "replica",
		image + "\nworkers: {replicas: -1}": "replicas",
		image + "\nsettings: {FLOWLANE_WORKERS: false}": "FLOWLANE_WORKERS",
		image + "\nsettings: {DATABASE_URL: x}":         "DATABASE_URL",
		image + "\ndrainSeconds: 30s":                   "drainSeconds",
		image + "\ndrainSeconds: 3601":                  "drainSeconds",
		image + "\nmaxConns: 5":                         "maxConns",
	} {
		if _, err := render(t, values); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "/", "."), want) {
			t.Errorf("%q: %v, want one of %s", values, err, want)
		}
	}
}

// rendered is what the chart makes, sorted.
type rendered struct {
	deployments []*apps.Deployment
	jobs        []*batch.Job
	services    []*core.Service
	budgets     []*policy.PodDisruptionBudget
	kinds       []string
}

// TestChart_Objects: all that the chart makes is as Kubernetes and the Prometheus operator know it, and fits together.
func TestChart_Objects(t *testing.T) {
	t.Parallel()
	for name, values := range installations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files, err := render(t, values)
			if err != nil {
				t.Fatal(err)
			}
			r := decode(t, files)
			want := "ConfigMap Deployment Deployment Job NetworkPolicy PodDisruptionBudget PodDisruptionBudget " +
				"PrometheusRule Service Service ServiceMonitor"
			if name == "least" {
				want = "Deployment Deployment Job NetworkPolicy PodDisruptionBudget PodDisruptionBudget Service Service"
			}
			if slices.Sort(r.kinds); strings.Join(r.kinds, " ") != want {
				t.Errorf("it makes %v", r.kinds)
			}
			r.selects(t)
			for _, d := range r.deployments {
				checkPod(t, &d.Spec.Template.Spec)
				checkStop(t, &d.Spec.Template.Spec)
			}
			for _, j := range r.jobs {
				checkPod(t, &j.Spec.Template.Spec)
				owner := map[string]string{"least": "database-url", "all": "owner-database-url"}[name]
				if items := j.Spec.Template.Spec.Volumes[0].Secret.Items; len(items) != 1 || items[0].Key != owner {
					t.Errorf("migrations connect by %v", items)
				}
			}
			notes := files["flowlane/templates/NOTES.txt"]
			if !strings.Contains(notes, "http://acme-flowlane.flows:") {
				t.Errorf("the notes say\n%s", notes)
			}
		})
	}
}

// selects fails where a selector does not find what it is for.
func (r *rendered) selects(t *testing.T) {
	t.Helper()
	pods := map[string]labels.Set{}
	for _, d := range r.deployments {
		pods[d.Labels["app.kubernetes.io/component"]] = d.Spec.Template.Labels
		if !labels.SelectorFromSet(d.Spec.Selector.MatchLabels).Matches(labels.Set(d.Spec.Template.Labels)) {
			t.Errorf("%s does not select its pods", d.Name)
		}
	}
	found := func(selector map[string]string) (names []string) {
		for component, set := range pods {
			if labels.SelectorFromSet(selector).Matches(set) {
				names = append(names, component)
			}
		}
		slices.Sort(names)
		return names
	}
	for _, s := range r.services {
		want := []string{"api"}
		if s.Labels["app.kubernetes.io/component"] == "operators" {
			want = []string{"api", "workers"}
		}
		if got := found(s.Spec.Selector); !slices.Equal(got, want) {
			t.Errorf("the service %s is of %v", s.Name, got)
		}
		for _, port := range s.Spec.Ports {
			for _, d := range r.deployments {
				if slices.Contains(want, d.Labels["app.kubernetes.io/component"]) {
					hasPort(t, &d.Spec.Template.Spec, port.TargetPort.StrVal)
				}
			}
		}
	}
	for _, b := range r.budgets {
		if got := found(b.Spec.Selector.MatchLabels); len(got) != 1 || !strings.HasSuffix(b.Name, got[0]) {
			t.Errorf("the budget %s is of %v", b.Name, got)
		}
	}
}

func hasPort(t *testing.T, pod *core.PodSpec, name string) {
	t.Helper()
	if !slices.ContainsFunc(pod.Containers[0].Ports, func(p core.ContainerPort) bool { return p.Name == name }) {
		t.Errorf("no port of the container is called %q", name)
	}
}

// checkPod: nothing runs as root or writes, secrets are files that the Secret has, and the program understands its
// command line and settings.
func checkPod(t *testing.T, pod *core.PodSpec) {
	t.Helper()
	c := pod.Containers[0]
	if !*pod.SecurityContext.RunAsNonRoot || !*c.SecurityContext.ReadOnlyRootFilesystem ||
		*c.SecurityContext.AllowPrivilegeEscalation || !slices.Equal(c.SecurityContext.Capabilities.Drop,
		[]core.Capability{"ALL"}) || *pod.AutomountServiceAccountToken {
		t.Errorf("it may too much: %v %v", pod.SecurityContext, c.SecurityContext)
	}
	files := map[string]bool{}
	for _, item := range pod.Volumes[0].Secret.Items {
		files[c.VolumeMounts[0].MountPath+"/"+item.Path] = true
	}
	folder, env := secretFolder(t), []string(nil)
	for _, e := range c.Env {
		value := e.Value
		if strings.HasSuffix(e.Name, "_FILE") {
			if !files[value] {
				t.Errorf("%s is %s, which is not among %v", e.Name, value, slices.Collect(maps.Keys(files)))
			}
			value = folder + "/" + strings.TrimPrefix(value[strings.LastIndex(value, "/")+1:], "owner-")
			delete(files, e.Value)
		}
		env = append(env, e.Name+"="+value)
	}
	if len(files) > 0 {
		t.Errorf("nothing reads %v", files)
	}
	understands(t, env, c.Args)
	for _, probe := range []*core.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if probe != nil {
			hasPort(t, pod, probe.HTTPGet.Port.StrVal)
		}
	}
}

// checkStop: a pod is killed no earlier than its process has drained.
func checkStop(t *testing.T, pod *core.PodSpec) {
	t.Helper()
	c, drain, pause := pod.Containers[0], int64(0), int64(0)
	for _, e := range c.Env {
		if e.Name == "FLOWLANE_DRAIN_TIMEOUT" {
			drain, _ = strconv.ParseInt(strings.TrimSuffix(e.Value, "s"), 10, 64)
		}
	}
	if c.Lifecycle != nil {
		pause = c.Lifecycle.PreStop.Sleep.Seconds
	}
	if grace := *pod.TerminationGracePeriodSeconds; drain == 0 || grace <= pause+drain+int64(stopMargin.Seconds()) {
		t.Errorf("a pod is killed after %d s: it waits for %d s and drains for %d s", grace, pause, drain)
	}
}

// TestChart_Alerts: the chart has all rules and dashboards that ship, with the address of the installation.
func TestChart_Alerts(t *testing.T) {
	t.Parallel()
	files, err := render(t, installations["all"])
	if err != nil {
		t.Fatal(err)
	}
	text := files["flowlane/templates/monitoring.yaml"]
	for _, name := range []string{"prometheus/rules.yaml", "prometheus/alerts.yaml"} {
		var rules struct {
			Groups []struct {
				Rules []struct{ Alert, Record string }
			}
		}
		if err := yaml.Unmarshal([]byte(read(t, name)), &rules); err != nil || len(rules.Groups) == 0 {
			t.Fatalf("%s: %v", name, err)
		}
		for _, r := range rules.Groups[0].Rules {
			if !strings.Contains(text, ": "+r.Alert+r.Record+"\n") {
				t.Errorf("it lacks %s%s", r.Alert, r.Record)
			}
		}
	}
	// One of two installations that one Prometheus watches may be gone.
	for _, role := range []string{"requests", "work"} {
		if !strings.Contains(text, `absent(flowlane_process{namespace="flows",role="`+role+`"})`) {
			t.Errorf("nobody is told when no process of this namespace does %s", role)
		}
	}
	if strings.Contains(text, "flows.example.com") ||
		!strings.Contains(text, "https://flows.acme.example/docs/operations.html#keys") {
		t.Error("alerts do not lead to the documentation of the installation")
	}
	for _, name := range []string{"service", "queues", "postgres"} {
		if !strings.Contains(text, fmt.Sprintf("%s.json: ", name)) {
			t.Errorf("it lacks the dashboard %s", name)
		}
	}
}
