package attach_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/fakehost"
)

// infos are device-info files in memory.
type infos struct {
	files  map[string]string
	broken error
	done   []string
}

func (f *infos) Begin(file, resource, deviceID string) error {
	f.done = append(f.done, "begin "+file)
	f.files[file] = fmt.Sprintf(`{"of":%q}`, resource+" "+deviceID)
	return f.broken
}

func (f *infos) Read(file string) (json.RawMessage, error) {
	if f.broken != nil || f.files[file] == "" {
		return nil, f.broken
	}
	return json.RawMessage(f.files[file]), nil
}

func (f *infos) Remove(file string) error {
	f.done = append(f.done, "remove "+file)
	delete(f.files, file)
	return f.broken
}

func withDevice(ifName string) plan.Attachment {
	a := network("net-a", ifName, `,"subnets":["10.1.0.0/24"]`)
	a.Resource, a.DeviceID, a.DeviceInfoFile = "x/nic", "d-"+ifName, "/info/"+ifName
	return a
}

func deviceRig(t *testing.T) (*rig, *infos) {
	t.Helper()
	r, f := newRig(t), &infos{files: map[string]string{}}
	r.DeviceInfo = f
	return r, f
}

// messages are those of a log, in one line.
func messages(log string) string {
	var all []string
	for _, m := range regexp.MustCompile(`msg="([^"]*)"`).FindAllStringSubmatch(log, -1) {
		all = append(all, m[1])
	}
	return strings.Join(all, "; ")
}

// said is the device information of a record and of the status that follows from it.
func said(rec attach.Record) []string {
	var all []string
	for i, entries := range attach.StatusEntries(rec) {
		for _, e := range entries {
			all = append(all, string(rec.Outcomes[i].DeviceInfo)+" "+string(e.DeviceInfo))
		}
	}
	return all
}

// TestT25DeviceInfoInTheStatus: what is known after ADD is recorded and published, and
// DEL removes the files.
func TestT25DeviceInfoInTheStatus(t *testing.T) {
	r, f := deviceRig(t)
	r.mustAdd(pod1, planOf(pod1, primary(), withDevice("net1"), withDevice("net2")))
	stored, err := r.host.Record("pod-1")
	if err != nil {
		t.Fatal(err)
	}
	same(t, []string{" ", `{"of":"x/nic d-net1"} {"of":"x/nic d-net1"}`, `{"of":"x/nic d-net2"} {"of":"x/nic d-net2"}`}, said(stored))
	if _, err := r.Plug(t.Context(), pod1, stored.Plan.Pod, withDevice("net5")); err != nil {
		t.Fatal(err)
	}
	if err := r.Unplug(t.Context(), pod1, stored.Plan.Pod, withDevice("net1")); err != nil {
		t.Fatal(err)
	}
	r.mustDel(pod1)
	same(t, []string{
		"begin /info/net1", "begin /info/net2", "begin /info/net5",
		"remove /info/net1", "remove /info/net5", "remove /info/net2",
	}, f.done)
}

// TestT25DeviceInfoIsCleanedUp after an ADD that fails, and not before DEL has succeeded.
func TestT25DeviceInfoIsCleanedUp(t *testing.T) {
	r, f := deviceRig(t)
	r.host.On("ADD net-a", fakehost.Fail(storeDown))
	r.host.On("DEL net-a", fakehost.Once(fakehost.Fail(storeDown)))
	_, err := r.Add(t.Context(), pod1, planOf(pod1, primary(), withDevice("net1")))
	fails(t, err, 117, "pod ns/pod-1: network ns/net-a (interface net1): ADD: address store down")
	same(t, map[string]string{"/info/net1": `{"of":"x/nic d-net1"}`}, f.files)
	r.mustDel(pod1)
	same(t, map[string]string{}, f.files)
}

// TestR14DeviceInfoFailsNothing: it is for people.
func TestR14DeviceInfoFailsNothing(t *testing.T) {
	r, f := deviceRig(t)
	f.broken = storeDown
	rec := r.mustAdd(pod1, planOf(pod1, primary(), withDevice("net1")))
	same(t, []string{" ", " "}, said(rec))
	r.mustDel(pod1)
	same(t, "the device-info of an attachment is not complete; the device-info of an attachment is not complete; the device-info of an attachment stays",
		messages(r.log.String()))
}

// TestR9DeviceInfoOfV4 is cleaned up where v4 put it.
func TestR9DeviceInfoOfV4(t *testing.T) {
	r, f := deviceRig(t)
	a := withDevice("net1")
	a.DeviceInfoFile = ""
	rec := attach.Record{State: attach.Attached, Created: birth, Sandbox: pod1, Plan: *planOf(pod1, primary(), a)}
	if err := r.Ledger.Save(rec, true); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Del(t.Context(), pod1, "eth0"); err != nil {
		t.Fatal(err)
	}
	same(t, []string{"remove /var/run/k8s.cni.cncf.io/devinfo/cni/ns-net-a-pod-1_net1"}, f.done)
}
