package deploy

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	sigsyaml "sigs.k8s.io/yaml"
)

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(filepath.Join(deployDir, "chart"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// template is `helm template --namespace kube-system`: values are laid over each other,
// the later over the earlier. The texts of the templates come back in no order.
func template(t *testing.T, values ...string) (map[string]string, error) {
	t.Helper()
	c, all := loadChart(t), chartutil.Values{}
	for _, text := range values {
		v, err := chartutil.ReadValues([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		all = chartutil.CoalesceTables(v, all)
	}
	top, err := chartutil.ToRenderValues(c, all, chartutil.ReleaseOptions{Name: "multus", Namespace: "kube-system", IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, top)
}

// charted are the objects that the chart makes.
func charted(t *testing.T, values ...string) *rendered {
	t.Helper()
	texts, err := template(t, values...)
	if err != nil {
		t.Fatal(err)
	}
	r := &rendered{}
	for _, text := range texts {
		documents := yaml.NewDecoder(strings.NewReader(text))
		for {
			var object any
			err := documents.Decode(&object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			if object != nil {
				r.add(t, jsonOf(t, object))
			}
		}
	}
	return r
}

func jsonOf(t *testing.T, object any) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := yaml.NewEncoder(&b).Encode(object); err != nil {
		t.Fatal(err)
	}
	text, err := sigsyaml.YAMLToJSON(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestI4_ChartMakesTheSame as the folders of the kustomizations.
func TestI4_ChartMakesTheSame(t *testing.T) {
	for _, mode := range installations {
		sameInstallation(t, mode, installation(t, mode), charted(t, "mode: "+mode))
	}
	for name := range overlays() {
		file := name
		switch name {
		case "kubeadm": // has no values of its own
			continue
		case "eks-govcloud", "eks-china":
			file = "eks"
		}
		values := []string{read(t, filepath.Join(deployDir, "chart/distributions", file+".yaml"))}
		if file != name {
			values = append(values, "image: {repository: "+overlays()[name].image+"}")
		}
		sameInstallation(t, name, installation(t, "overlays/"+name), charted(t, values...))
	}
}

// TestI4_ChartMonitoring: one value does what the folder, its component and a key do.
func TestI4_ChartMonitoring(t *testing.T) {
	want, monitoring := withPort(t), installation(t, "monitoring")
	want.names = append(want.names, monitoring.names...)
	got := charted(t, "monitoring: {enabled: true, labels: {release: main}}")
	same(t, "the port", float64(9091), got.keys(t)["metricsPort"])
	got.config = want.config
	sameInstallation(t, "monitoring", want, got)
	monitoring.monitor.Labels = map[string]string{"release": "main"}
	monitoring.rules.Labels = monitoring.monitor.Labels
	same(t, "the monitor", monitoring.monitor, got.monitor)
	same(t, "the rules", monitoring.rules, got.rules)
	same(t, "the dashboard's labels", monitoring.dashboard.ObjectMeta, got.dashboard.ObjectMeta)
	same(t, "the dashboard", strings.TrimSpace(monitoring.dashboard.Data["multus.json"]), strings.TrimSpace(got.dashboard.Data["multus.json"]))
}

// TestI4_ChartModes: what the modes make of the values of a distribution.
func TestI4_ChartModes(t *testing.T) {
	k3s, openshift := read(t, deployDir+"/chart/distributions/k3s.yaml"), read(t, deployDir+"/chart/distributions/openshift.yaml")
	thin := charted(t, k3s, "{mode: thin, config: {namespaceIsolation: true, cleanupConfigOnExit: false, allowedPlugins: [macvlan, static]}}")
	same(t, "thin's arguments", []string{
		"--multus-conf-file=auto",
		"--skip-multus-binary-copy",
		"--multus-kubeconfig-file-host=/var/lib/rancher/k3s/agent/etc/cni/net.d/multus.d/multus.kubeconfig",
		"--allowed-plugins=macvlan,static",
		"--additional-bin-dir=/var/lib/rancher/k3s/data/cni",
		"--cleanup-config-on-exit=false",
		"--namespace-isolation=true",
	}, thin.pod().Containers[0].Args)
	same(t, "hotplug's constraints", constraints(true), charted(t, openshift, "mode: hotplug").scc)
	same(t, "a key that is false", false, charted(t, "config: {logToStderr: false}").keys(t)["logToStderr"])
	secrets := charted(t, "image: {tag: v9, pullSecrets: [one]}").pod()
	same(t, "secrets", []corev1.LocalObjectReference{{Name: "one"}}, secrets.ImagePullSecrets)
	same(t, "tag", "localhost/multus-cni:v9", secrets.Containers[0].Image)
}

// TestI4_ChartKeepsTheKind: Helm installs what is in crds/ and never removes it.
func TestI4_ChartKeepsTheKind(t *testing.T) {
	r := &rendered{}
	for _, crd := range loadChart(t).CRDObjects() {
		text, err := sigsyaml.YAMLToJSON(crd.File.Data)
		if err != nil {
			t.Fatal(err)
		}
		r.add(t, text)
	}
	want := installation(t, "crd")
	same(t, "objects", want.names, r.names)
	same(t, "the kind", want.resource, r.resource)
}

// TestI4_ChartRefuses values that would be passed over.
func TestI4_ChartRefuses(t *testing.T) {
	for values, want := range map[string]string{
		"mode: fat":                                  "/mode",
		"imgae: {}":                                  "imgae",
		"hostPaths: {cniBin: opt/cni/bin}":           "/hostPaths/cniBin",
		"monitoring: {port: '9091'}":                 "/monitoring/port",
		"{mode: thin, monitoring: {enabled: true}}":  "/monitoring/enabled",
		"perNodeCertificate: {duration: long}":       "/perNodeCertificate/duration",
		"{mode: thin, config: {connectionLimit: 4}}": "config.connectionLimit: thin_entrypoint has no flag for this key; take mode thick",
	} {
		if _, err := template(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, and not %q", values, err, want)
		}
	}
}
