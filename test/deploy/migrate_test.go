package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// mounted lists the folders of the node that the daemon sees.
func mounted(set *appsv1.DaemonSet) map[string]string {
	paths := map[string]string{}
	for _, v := range set.Spec.Template.Spec.Volumes {
		if v.HostPath != nil {
			paths[v.Name] = v.HostPath.Path
		}
	}
	all := map[string]string{}
	for _, c := range set.Spec.Template.Spec.Containers {
		for _, m := range c.VolumeMounts {
			if path := paths[m.Name]; path != "" {
				all[path] = m.MountPath
			}
		}
	}
	return all
}

// TestI4_DeployOfMigration: what multusctl migrate prints for each sample is a folder that
// kubectl apply -k takes, with the image, the configuration and the folders that it names.
// The samples' answers are multusctl's golden files.
func TestI4_DeployOfMigration(t *testing.T) {
	answers, err := filepath.Glob("../../internal/multusctl/testdata/migrate/*.json")
	if err != nil || len(answers) == 0 {
		t.Fatal("no answers", err)
	}
	more := map[string]map[string]string{
		"eks-thin-v3":            {"/var/log/aws-routed-eni": "/var/log/aws-routed-eni"},
		"eks-thick-v4":           {"/var/log": "/var/log"},
		"upstream-thin-v3-fixed": {"/run/flannel": "/host/run/flannel"},
		"upstream-thick-v4":      {"/run/primary": "/host/run/primary", "/srv/multus": "/srv/multus"},
	}
	charts := 0
	for _, answer := range answers {
		raw, err := os.ReadFile(answer)
		if err != nil {
			t.Fatal(err)
		}
		var report struct {
			Installations []struct {
				Becomes struct {
					Base, Image, MemoryLimit string
					DaemonConfig             any
					Files                    []struct{ Name, Content string }
					Chart                    *struct{ Distribution, Values string }
				}
			}
		}
		if err := json.Unmarshal(raw, &report); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(answer), ".json")
		b := report.Installations[0].Becomes
		dir := t.TempDir()
		here, err := filepath.Abs("../..")
		if err == nil {
			here, err = filepath.Rel(dir, here)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range b.Files {
			if f.Name == "networks.yaml" {
				continue // the tests' reader of objects knows only what we install
			}
			content := strings.ReplaceAll(f.Content, "PATH-OF-THIS-REPOSITORY", here)
			content = strings.ReplaceAll(content, "- networks.yaml\n", "")
			if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r := render(t, dir)
		var config any
		if err := json.Unmarshal([]byte(r.config.Data["daemon-config.json"]), &config); err != nil {
			t.Fatal(err)
		}
		same(t, name+"'s configuration", b.DaemonConfig, config)
		for _, c := range r.containers() {
			same(t, name+"'s image of "+c.Name, b.Image, c.Image)
		}
		daemon := r.pod().Containers[0]
		same(t, name+"'s memory", b.MemoryLimit, daemon.Resources.Limits.Memory().String())
		same(t, name+"'s QoS", daemon.Resources.Limits[corev1.ResourceMemory], daemon.Resources.Requests[corev1.ResourceMemory])
		want := mounted(render(t, filepath.Join(deployDir, b.Base)).set)
		for path, at := range more[name] {
			want[path] = at
		}
		same(t, name+"'s folders", want, mounted(r.set))
		if b.Chart == nil {
			continue
		}
		values := []string{b.Chart.Values}
		if b.Chart.Distribution != "" {
			text, err := os.ReadFile(filepath.Join("../..", b.Chart.Distribution))
			if err != nil {
				t.Fatal(err)
			}
			values = []string{string(text), b.Chart.Values}
		}
		withHelm := charted(t, values...)
		for key, text := range withHelm.config.Data { // an empty key is none: it takes back the distribution's
			withHelm.config.Data[key] = strings.Replace(text, `  "multusMasterCNI": "",`+"\n", "", 1)
		}
		sameInstallation(t, name+" with Helm", r, withHelm)
		charts++
	}
	if charts == 0 {
		t.Error("no answer has values for the chart")
	}
}
