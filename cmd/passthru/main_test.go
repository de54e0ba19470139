package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMain lets the test binary be the plugin.
func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// plugin runs the plugin as a runtime does, and returns what it answers.
func plugin(t *testing.T, command, stdin string) (answer map[string]any, failed bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=c1", "CNI_NETNS=/proc/self/ns/net", "CNI_NETNS_OVERRIDE=1", "CNI_IFNAME=net1", "CNI_PATH=/opt/cni/bin"}
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if errs.Len() > 0 {
		t.Logf("standard error: %s", &errs)
	}
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
			t.Fatalf("%v: %s", err, &out)
		}
	}
	return answer, err != nil
}

func conf(version, more string) string {
	return `{"cniVersion":"` + version + `","name":"aux","type":"passthru"` + more + `}`
}

func TestC1_2PassthruAdd(t *testing.T) {
	dns := map[string]any{}
	for version, want := range map[string]map[string]any{
		"0.3.0": {"cniVersion": "0.3.0", "dns": dns}, "0.3.1": {"cniVersion": "0.3.1", "dns": dns}, "0.4.0": {"cniVersion": "0.4.0", "dns": dns},
		"1.0.0": {"cniVersion": "1.0.0"}, "1.1.0": {"cniVersion": "1.1.0"},
	} {
		got, failed := plugin(t, "ADD", conf(version, ""))
		if diff := cmp.Diff(want, got); diff != "" || failed {
			t.Errorf("%s: failed %t: %s", version, failed, diff)
		}
		previous := `{"cniVersion":"` + version + `","interfaces":[{"name":"net1","sandbox":"/n"}],"ips":[{"version":"4","interface":0,"address":"10.0.0.2/24"}],"dns":{}}`
		got, failed = plugin(t, "ADD", conf(version, `,"prevResult":`+previous))
		var same map[string]any
		if err := json.Unmarshal([]byte(previous), &same); err != nil {
			t.Fatal(err)
		}
		if version >= "1" {
			// CNI 1.0 took the addresses' version away, and an empty dns with it.
			delete(same["ips"].([]any)[0].(map[string]any), "version")
			delete(same, "dns")
		}
		if diff := cmp.Diff(same, got); diff != "" || failed {
			t.Errorf("%s with prevResult: failed %t: %s", version, failed, diff)
		}
	}
	if got, failed := plugin(t, "ADD", conf("1.0.0", `,"prevResult":{"cniVersion":"1.0.0","ips":7}`)); !failed || got["code"] != 6.0 {
		t.Errorf("a broken prevResult: failed %t: %v", failed, got)
	}
}

func TestC1_2PassthruOtherVerbs(t *testing.T) {
	tests := map[string]struct {
		want   map[string]any
		failed bool
	}{
		"DEL":     {},
		"GC":      {},
		"STATUS":  {},
		"CHECK":   {map[string]any{"code": 999.0, "msg": "passthru does not support CHECK", "details": "set disableCheck in the chain"}, true},
		"VERSION": {want: map[string]any{"cniVersion": "1.1.0", "supportedVersions": []any{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}}},
	}
	for verb, tt := range tests {
		got, failed := plugin(t, verb, conf("1.1.0", `,"prevResult":{"cniVersion":"1.1.0"}`))
		if diff := cmp.Diff(tt.want, got); diff != "" || failed != tt.failed {
			t.Errorf("%s: failed %t: %s", verb, failed, diff)
		}
	}
}
