package multusctl

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"sigs.k8s.io/yaml"
)

// migrated runs multusctl in this process and gives all that it prints.
func migrated(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	in, err := os.Create(filepath.Join(t.TempDir(), "stdin"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := in.WriteString(stdin); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code := Run(t.Context(), append([]string{"migrate"}, args...), in, &stdout, &stderr)
	if (code != 0) != (stderr.Len() > 0) && !strings.Contains(stdout.String(), "wrong") {
		t.Errorf("exit code %d with %q", code, stderr.String())
	}
	return stdout.String() + stderr.String()
}

// golden compares a text with a file, or writes it with -update.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: %s", file, diff)
	}
}

// TestI4_MigrateSamples: the installations that people have, in both forms.
func TestI4_MigrateSamples(t *testing.T) {
	t.Chdir("testdata/migrate")
	samples, err := filepath.Glob("*.yaml")
	if err != nil || len(samples) == 0 {
		t.Fatal("no samples", err)
	}
	for _, sample := range samples {
		name := strings.TrimSuffix(sample, ".yaml")
		golden(t, name+".txt", migrated(t, "", sample))
		golden(t, name+".json", migrated(t, "", sample, "-o", "json"))
	}
}

// cluster serves the objects of a sample as an API server does: an item of a list has no kind.
func cluster(t *testing.T, sample string) (kubeconfig string) {
	t.Helper()
	raw, err := os.ReadFile(sample)
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(string(raw), "\n---\n")
	answers := map[string][]byte{}
	for path, text := range map[string]string{"/api/v1/namespaces/kube-system/configmaps/multus-daemon-config": first, "/apis/apps/v1/daemonsets": second} {
		object, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		answers[path] = object
	}
	const set = "/apis/apps/v1/daemonsets"
	answers[set] = fmt.Appendf(nil, `{"kind":"DaemonSetList","apiVersion":"apps/v1","items":[{"metadata":{"name":"other","namespace":"x"}},%s]}`,
		strings.Replace(strings.Replace(string(answers[set]), `"kind":"DaemonSet",`, "", 1), `"metadata":{`, `"metadata":{"uid":"u",`, 1))
	lo, err := netlink.LinkByName("lo") // of the tests' own namespace
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, known := answers[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		if !known {
			w.WriteHeader(http.StatusForbidden)
			answer = []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`)
		}
		_, _ = w.Write(answer)
	}))
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("clusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n", server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// TestI4_MigrateReadsACluster: what it finds is what it finds in the file, and more: who made
// the object.
func TestI4_MigrateReadsACluster(t *testing.T) {
	sample := "testdata/migrate/eks-thick-v4.yaml"
	fromFile := migrated(t, "", sample)
	want := strings.Replace(fromFile, sample+": document 2", "the cluster: document 1, item 2", 1)
	want = strings.Replace(want, "Take our manifest", "Delete the old DaemonSet, because kubectl apply did not make it, so leftovers of it would stay, and take our manifest", 1)
	want = strings.Replace(want, "       kubectl apply -k .\n", "       kubectl -n kube-system delete daemonset kube-multus-ds\n       kubectl apply -k .\n", 1)
	want = strings.Replace(want, "       kubectl replace -f before.yaml\n", "       kubectl delete -k .\n       kubectl apply -f before.yaml\n", 1)
	if diff := cmp.Diff(want, migrated(t, "", "--kubeconfig", cluster(t, sample))); diff != "" {
		t.Error(diff)
	}
}

// TestI4_MigrateReadsWhatItIsGiven: a folder and the standard input are as good as a file,
// and the new files are those that are shown.
func TestI4_MigrateReadsWhatItIsGiven(t *testing.T) {
	const sample = "testdata/migrate/eks-thick-v4.yaml"
	raw, err := os.ReadFile(sample)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	first, second, _ := strings.Cut(string(raw), "\n---\n")
	for name, text := range map[string]string{"2.yaml": first, "1.yaml": second, "notes.txt": "{"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	place := regexp.MustCompile(`\((\S+|the standard input): document \d\)`)
	bare := func(text string) string { return place.ReplaceAllString(text, "") }
	want := bare(migrated(t, "", sample))
	if diff := cmp.Diff(want, bare(migrated(t, "", dir))); diff != "" {
		t.Error(diff)
	}
	into := filepath.Join(t.TempDir(), "new")
	if diff := cmp.Diff(want, bare(migrated(t, string(raw), "-", "--write", into))); diff != "" {
		t.Error(diff)
	}
	entries, err := os.ReadDir(into)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		text, err := os.ReadFile(filepath.Join(into, e.Name()))
		shown := "\n  " + e.Name() + "\n    " + strings.ReplaceAll(strings.TrimSuffix(string(text), "\n"), "\n", "\n    ") + "\n"
		if err != nil || !strings.Contains(want, shown) {
			t.Errorf("%s is not as it is shown: %v", e.Name(), err)
		}
	}
	if diff := cmp.Diff([]string{"daemon-config.json", "daemonset.yaml", "kustomization.yaml"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestI4_MigrateMistakes(t *testing.T) {
	dir := t.TempDir()
	const sample = "testdata/migrate/eks-thick-v4.yaml"
	for want, args := range map[string][]string{
		"name a file, a folder or - to read, or a cluster with --kubeconfig; one of them":                                  {},
		"name a file, a folder or - to read, or a cluster with --kubeconfig; one of them ":                                 {"x", "--kubeconfig", "y"},
		`flag --output: "yaml" is no format; want text or json`:                                                            {"x", "-o", "yaml"},
		"flag --repository: /m is absolute, which kustomize does not take; want the way there from the new files":          {sample, "--repository", "/m"},
		"stat absent: no such file or directory":                                                                           {"absent"},
		"there is no DaemonSet that runs Multus, and there are no values of its chart":                                     {dir},
		"flag --write: mkdir " + dir + ": file exists":                                                                     {sample, "--write", dir},
		"flag --write: 7 installations were found; give one of them alone":                                                 {"testdata/migrate", "--write", "x"},
		"flag --check looks at this node, and takes no file, cluster or folder to write":                                   {"--check", "x"},
		"API client: not available yet: kubeconfig " + dir + "/absent: stat " + dir + "/absent: no such file or directory": {"--kubeconfig", dir + "/absent"},
	} {
		if got := migrated(t, "", args...); got != "multusctl: "+strings.TrimSpace(want)+"\n" {
			t.Errorf("%v: got %q, want %q", args, got, want)
		}
	}
}

// thinNode is a node that the v3 sample has left.
func thinNode(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{
		"etc/cni/net.d/00-multus.conf":             `{"cniVersion":"0.4.0","name":"multus-cni-network","type":"multus","kubeconfig":"` + dir + `/etc/cni/net.d/multus.d/multus.kubeconfig","delegates":[{"cniVersion":"0.4.0","name":"aws-cni","plugins":[{"type":"aws-cni"}]}]}`,
		"etc/cni/net.d/10-aws.conflist":            `{"cniVersion":"0.4.0","name":"aws-cni","plugins":[{"type":"aws-cni"}]}`,
		"etc/cni/net.d/multus.d/multus.kubeconfig": "users:\n- user: {token: t}\n",
		"opt/cni/bin/multus":                       "#!/bin/sh\necho 'multus-cni: version:v3.9.2, commit:1, date:2022-10-01'\n",
		"opt/cni/bin/aws-cni":                      "",
		"var/lib/cni/multus/a0000000000ff": `[{"Name":"aws-cni","Bytes":"eyJjbmlWZXJzaW9uIjoiMC40LjAiLCJuYW1lIjoiYXdzLWNuaSIsInR5cGUiOiJhd3MtY25pIn0="},
 {"Name":"default/lan","Bytes":"eyJjbmlWZXJzaW9uIjoiMC40LjAiLCJuYW1lIjoibGFuIiwidHlwZSI6ImJyaWRnZSJ9"}]`,
		"var/lib/cni/multus/results/aws-cni-a0000000000ff-eth0": "{}",
		"var/lib/cni/multus/results/lan-a0000000000ff-net1":     "{}",
		"var/lib/cni/results/empty":                             "{}",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestI4_MigrateGuide: what docs/migrate.md shows is what the command prints.
func TestI4_MigrateGuide(t *testing.T) {
	const guide = "../../docs/migrate.md"
	raw, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(guide)
	if err != nil {
		t.Fatal(err)
	}
	node := thinNode(t)
	t.Chdir("testdata/migrate")
	shown := 0
	block := regexp.MustCompile("(?ms)^```\n\\$ multusctl migrate ([^\n]*)\n(.*?)^```$")
	got := block.ReplaceAllStringFunc(string(raw), func(text string) string {
		shown++
		command := block.FindStringSubmatch(text)[1]
		args := strings.Fields(command)
		if command == "--check" {
			args = append(args, "--cni-conf-dir", node+"/etc/cni/net.d", "--cni-bin-dir", node+"/opt/cni/bin", "--cni-dir", node+"/var/lib/cni/multus", "--socket-dir", node+"/run/multus")
		}
		output := strings.ReplaceAll(migrated(t, "", args...), node, "")
		return "```\n$ multusctl migrate " + command + "\n" + output + "```"
	})
	if shown < 2 {
		t.Fatalf("the guide shows %d outputs", shown)
	}
	golden(t, path, got)
}
