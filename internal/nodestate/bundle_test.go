package nodestate

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestI4_Redact(t *testing.T) {
	in := `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"calico","etcd_password":7,"etcdEndpoints":"https://u:p@h","mtu":1500,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/24"}]]},
"kubernetes":{"kubeconfig":"/etc/k","k8s_auth_token":{"a":["b"]}},"args":["--x=secret"],"big":12345678901234567890,"on":true,"none":null,"sysctl":{"name":"net"}}]}`
	want := `{
  "cniVersion": "1.0.0",
  "name": "x",
  "plugins": [
    {
      "args": [
        "(removed)"
      ],
      "big": 12345678901234567890,
      "etcdEndpoints": "(removed)",
      "etcd_password": "(removed)",
      "ipam": {
        "ranges": [
          [
            {
              "subnet": "10.0.0.0/24"
            }
          ]
        ],
        "type": "host-local"
      },
      "kubernetes": {
        "k8s_auth_token": "(removed)",
        "kubeconfig": "/etc/k"
      },
      "mtu": 1500,
      "none": null,
      "on": true,
      "sysctl": {
        "name": "net"
      },
      "type": "calico"
    }
  ]
}
`
	if diff := cmp.Diff(want, string(redact([]byte(in)))); diff != "" {
		t.Error(diff)
	}
	if got := string(redact([]byte("password: x"))); got != `"(removed): no JSON"` {
		t.Errorf("a text that is not JSON gives %s", got)
	}
}

func TestI4_RedactLog(t *testing.T) {
	in := `10:00 [verbose] Add: default:web {"type":"x","etcd_password":"a b","n":{"apiToken": 12},"mtu":1500}
10:01 [debug] conf "{\"auth\":\"p w\",\"name\":\"n\"}"
10:02 Authorization: Bearer abc.def and eyJhbGciOi.eyJpc3Mi.c2ln here
10:03 level=info msg=ADD pod=default/web`
	want := `10:00 [verbose] Add: default:web {"type":"x","etcd_password":"(removed)","n":{"apiToken": "(removed)"},"mtu":1500}
10:01 [debug] conf "{\"auth\":"(removed)",\"name\":\"n\"}"
10:02 Authorization: Bearer (removed) and (removed) here
10:03 level=info msg=ADD pod=default/web`
	if diff := cmp.Diff(want, redactLog(in)); diff != "" {
		t.Error(diff)
	}
}

// TestI4_Bundle: everything is in it, and no secret.
func TestI4_Bundle(t *testing.T) {
	const secret = "hunter2"
	r := healthy(t)
	r.conf("10-a.conflist", `{"cniVersion":"1.0.0","name":"cluster","plugins":[{"type":"bridge","anything":"`+secret+`"}]}`)
	logFile := r.paths.ConfDir + "/plugin.log"
	r.conf("00-multus.conf", strings.Replace(r.thick("10-a.conflist"), "{", `{"logFile":"`+logFile+`","unheard":"`+secret+`",`, 1))
	r.write(logFile, "the oldest line\n"+strings.Repeat("line\n", logTail/5)+`{"password":"`+secret+"\"}\n", 0o600)
	r.conf("multus.kubeconfig", secret)
	r.serve(r.told())
	now := created.Add(time.Hour)
	state := Read(t.Context(), r.paths)
	var archive bytes.Buffer
	if err := Bundle(t.Context(), &archive, state, Diagnose(t.Context(), state, now), now); err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(&archive)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for files := tar.NewReader(zip); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), secret) {
			t.Errorf("%s holds the secret", header.Name)
		}
		got[header.Name] = r.hide(string(content))
	}
	for name, has := range map[string]string{
		"versions.txt": "\nmultus-daemon: " + v5 + "\nmultus-shim: " + v5 + "\nkernel: ", "status.json": `"sandbox": "c1"`, "doctor.json": `"check": "locks"`,
		"readyz.txt": "ok\n", "metrics.txt": "multus_ready 1\n", "00-multus.conf": `"primaryFile": "DIR/net.d/10-a.conflist"`, "primary.json": `"type": "bridge"`,
		"plugin.log": "line\n{\"password\":\"(removed)\"}\n",
	} {
		text, there := got["multus-bundle/"+name]
		if !there || !strings.Contains(text, has) {
			t.Errorf("%s (there: %t) has no %q", name, there, has)
		}
		delete(got, "multus-bundle/"+name)
	}
	if len(got) > 0 {
		t.Errorf("there is more in it: %v", got)
	}
}
