package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/plan"
)

// record is a sandbox with all that can be recorded of one.
func record(t testing.TB) attach.Record {
	return attach.Record{
		State: attach.Detaching, Created: time.Date(2026, 8, 1, 12, 0, 0, 123456789, time.UTC),
		Sandbox: attach.Sandbox{ContainerID: id, NetNS: "/var/run/netns/x"},
		Plan: plan.Plan{
			Version: plan.Version, Pod: plan.Pod{Namespace: "ns", Name: "pod", UID: "uid-1"},
			Env: []string{"HTTP_PROXY=http://a&b"}, Warnings: []string{"say <so>"},
			Attachments: []plan.Attachment{
				{
					Role: plan.Primary, Network: "primary", Interface: "eth0", Args: []plan.Arg{{"IgnoreUnknown", "true"}, {"K", "a=b;c"}},
					Config: config(t, `{"name":"primary","cniVersion":"1.0.0","vendor":9007199254740993,"plugins":[{"z":"<&>\u003c","type":"bridge","capabilities":{"ips":true}},{"type":"tuning"}]}`),
					Routes: plan.RouteWish{DropV4: true, DropV6: true},
				},
				{
					Role: plan.Secondary, Network: "ns/net-a", Element: 1, Interface: "net1", Args: []plan.Arg{},
					Config:         config(t, `{"name":"net-a","type":"sriov","big":1e400,"deep":{"日本":[null,{"x":0.10}]}}`),
					CapabilityArgs: map[string]json.RawMessage{"mac": json.RawMessage(`"02:00:00:00:00:01"`), "x": json.RawMessage(`{"<n>":9007199254740993}`)},
					Routes:         plan.RouteWish{Gateways: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}},
					DeviceID:       "0000:01:00.0", Resource: "vendor.com/vf",
					Request: plan.Request{MAC: "02:00:00:00:00:01", InfinibandGUID: "24:8a:07:03:00:8d:ae:2e", IPs: []string{"10.0.0.7/24", "fd00::7/64"}},
				},
				{Role: plan.Secondary, Network: "ns/net-a", Element: 2, Interface: "net7", Config: config(t, `{"name":"net-a","type":"x"}`), Routes: plan.RouteWish{Own: true}},
			},
		},
		Outcomes: []attach.Outcome{
			{Result: json.RawMessage(`{"cniVersion":"1.0.0","n":9007199254740993,"s":"<&>"}`), Routed: json.RawMessage(`{"cniVersion":"1.0.0"}`), Millis: 7},
			{Result: json.RawMessage(`{"cniVersion":"0.3.1"}`), Detached: true},
			{},
		},
	}
}

func TestR2RecordRoundTrip(t *testing.T) {
	intent := record(t)
	intent.State, intent.Outcomes = attach.Intent, nil
	attached := record(t)
	attached.State, attached.Plan.Env, attached.Plan.Warnings, attached.Plan.Attachments, attached.Outcomes = attach.Attached, nil, nil, attached.Plan.Attachments[:1], attached.Outcomes[:1]
	for name, want := range map[string]attach.Record{"everything": record(t), "intent": intent, "one attachment": attached} {
		for _, durable := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s durable=%v", name, durable), func(t *testing.T) {
				l := ledger(t)
				if err := l.Save(want, durable); err != nil {
					t.Fatal(err)
				}
				same(t, want, load(t, New(l.dir, "another boot"), id))
				if got := files(t, l.dir); !slices.Equal(got, []string{id}) {
					t.Errorf("the folder holds %q", got)
				}
				info, err := os.Stat(filepath.Join(l.dir, id))
				if err != nil || info.Mode() != 0o600 {
					t.Errorf("the file is %v, %v", info.Mode(), err)
				}
			})
		}
	}
}

func TestR2SaveReplacesAndRemoveRemoves(t *testing.T) {
	l := ledger(t)
	first, second := record(t), record(t)
	second.State, second.Outcomes = attach.Attached, nil
	save(t, l, first)
	save(t, l, second)
	same(t, second, load(t, l, id))
	other := record(t)
	other.Sandbox.ContainerID = "other"
	save(t, l, other)
	for range 2 { // no record is success
		if err := l.Remove(id); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Load(id); !errors.Is(err, attach.ErrNoRecord) {
			t.Errorf("after Remove, Load gives %v", err)
		}
	}
	same(t, other, load(t, l, "other"))
}

func TestR2SaveRefusesAnEmptyRecord(t *testing.T) {
	l := ledger(t)
	empty := record(t)
	empty.Plan.Attachments = nil
	if err := l.Save(empty, true); fmt.Sprint(err) != "sandbox "+id+": a record needs an attachment" {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(l.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was written: %v", err)
	}
}

func TestI2_NoLedgerYet(t *testing.T) {
	l := ledger(t)
	ids, err := l.Sandboxes()
	unfinished, err2 := l.Unfinished()
	if len(ids)+len(unfinished)+l.Damaged() != 0 || errors.Join(err, err2, l.Remove(id), l.Evict(id)) != nil {
		t.Errorf("%v, %v, %d; %v, %v", ids, unfinished, l.Damaged(), err, err2)
	}
	if _, err := l.Load(id); !errors.Is(err, attach.ErrNoRecord) {
		t.Errorf("Load gives %v", err)
	}
}

// damaged asserts ErrDamaged, and that the engine's way on from there works.
func damaged(t *testing.T, l *Ledger, id string) {
	t.Helper()
	if r, err := l.Load(id); !errors.Is(err, attach.ErrDamaged) {
		t.Fatalf("Load gives %v, %+v", err, r)
	}
}

func TestT15DamagedRecord(t *testing.T) {
	l := ledger(t)
	save(t, l, record(t))
	good := string(content(t, filepath.Join(l.dir, id)))
	put := func(text string) func(*testing.T, string) {
		return func(t *testing.T, path string) { write(t, path, []byte(text)) }
	}
	inside := "is no list of records: "
	for name, c := range map[string]struct {
		make func(*testing.T, string)
		want string
	}{
		"empty file":         {put(""), inside + "unexpected end of JSON input"},
		"half of it":         {put(good[:len(good)/2]), inside + "unexpected end of JSON input"},
		"zeroes":             {put(strings.Repeat("\x00", 4096)), inside + `invalid character '\x00' looking for beginning of value`},
		"zeroes at the end":  {put(good[:len(good)-9] + strings.Repeat("\x00", 9)), inside + `invalid character '\x00' in string literal`},
		"more after it":      {put(good + "x"), inside + "invalid character 'x' after top-level value"},
		"an empty list":      {put("[]"), "is an empty list"},
		"null":               {put("null"), "is an empty list"},
		"wrong schema":       {put(`{"records":[]}`), inside + "json: cannot unmarshal object into Go value of type []cniconf.Object"},
		"a list of numbers":  {put(`[1,2]`), inside + "is not a JSON object"},
		"no seal, no v4":     {put(`[{}]`), "element 1 has a configuration that is not valid JSON at byte 0: unexpected end of JSON input"},
		"v4, other types":    {put(`[{"Name":7}]`), "element 1 is no record of Multus v4: json: cannot unmarshal number into Go struct field v4Record.Name of type string"},
		"v4, not base64":     {put(`[{"Bytes":"%"}]`), "element 1 is no record of Multus v4: illegal base64 data at input byte 0"},
		"seal of a number":   {put(`[{"io.multus.ledger":7}]`), `has no readable key "io.multus.ledger": json: cannot unmarshal number into Go value of type ledger.seal`},
		"seal of nothing":    {put(`[{"io.multus.ledger":{}}]`), "does not match its checksum"},
		"another checksum":   {put(strings.Replace(good, `"sum":"crc32c:`, `"sum":"crc32c:0`, 1)), "does not match its checksum"},
		"another record":     {put(strings.Replace(good, `"state":"detaching"`, `"state":"attached"`, 1)), "does not match its checksum"},
		"another form":       {put(sealed(`{"state":7}`)), "holds a record of another form: json: cannot unmarshal number into Go struct field Record.state of type attach.State"},
		"no attachment":      {put(sealed(`{"state":"attached"}`)), "holds a record without attachments"},
		"another sandbox's":  {put(good), ""}, // under the name "other"
		"unreadable, folder": {func(t *testing.T, path string) { write(t, filepath.Join(path, "x"), nil) }, "is a directory"},
		"unreadable, a loop": {func(t *testing.T, path string) {
			if err := os.Symlink(path, path); err != nil {
				t.Fatal(err)
			}
		}, "too many levels of symbolic links"},
	} {
		t.Run(name, func(t *testing.T) {
			l, id := ledger(t), id
			if c.want == "" {
				id, c.want = "other", `is the record of the sandbox "`+id+`"`
			}
			path := filepath.Join(l.dir, id)
			write(t, filepath.Join(l.dir, "bystander"), []byte(good))
			c.make(t, path)
			_, err := l.Load(id)
			if !errors.Is(err, attach.ErrDamaged) || !strings.HasPrefix(err.Error(), "the record of the sandbox is damaged: ") ||
				!strings.Contains(err.Error(), path) || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("the error is %q, want ErrDamaged with the path, ending %q", err, c.want)
			}
			if err := l.SetAside(id); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Load(id); !errors.Is(err, attach.ErrNoRecord) || l.Damaged() != 1 {
				t.Errorf("after SetAside Load gives %v; %d are kept", err, l.Damaged())
			}
			if ids, err := l.Sandboxes(); err != nil || !slices.Equal(ids, []string{"bystander"}) {
				t.Errorf("list gives %q, %v", ids, err)
			}
		})
	}
}

// sealed is a file whose seal is whole, with the given record.
func sealed(record string) string {
	raw, err := json.Marshal([]map[string]seal{{sealKey: {Sum: sum([]byte(record)), Record: json.RawMessage(record)}}})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func TestT15TruncatedAtEveryByte(t *testing.T) {
	l := ledger(t)
	save(t, l, record(t))
	for name, whole := range map[string][]byte{"ours": content(t, filepath.Join(l.dir, id)), "v4's": content(t, filepath.Join("testdata/v4-state", v4ID))} {
		t.Run(name, func(t *testing.T) {
			l := ledger(t)
			for n := range len(strings.TrimSpace(string(whole))) {
				write(t, filepath.Join(l.dir, id), whole[:n])
				damaged(t, l, id)
			}
		})
	}
}

// A changed byte anywhere never makes a wrong record: it is noticed, it is in the
// part for v4, or it hides our part and leaves v4's.
func TestT15AnyByteChanged(t *testing.T) {
	l := ledger(t)
	want := record(t)
	save(t, l, want)
	path := filepath.Join(l.dir, id)
	whole := content(t, path)
	for i := range whole {
		text := slices.Clone(whole)
		text[i] ^= 1
		write(t, path, text)
		switch r, err := l.Load(id); {
		case errors.Is(err, attach.ErrDamaged):
		case err != nil:
			t.Fatalf("byte %d: %v", i, err)
		case r.Origin == attach.Ours:
			same(t, want, r)
		case r.Origin != attach.FromV4 || strings.Contains(string(text), `"io.multus.ledger":`):
			t.Fatalf("byte %d: %+v", i, r)
		}
		if t.Failed() {
			t.Fatalf("byte %d, %q instead of %q", i, text[i], whole[i])
		}
	}
}

// A process that has too many files open has not lost its records.
func TestT15PassingTroubleIsNoDamage(t *testing.T) {
	l := ledger(t)
	save(t, l, record(t))
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, err := l.Load(id)
	if reset := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); reset != nil {
		t.Fatal(reset)
	}
	if !errors.Is(err, unix.EMFILE) || errors.Is(err, attach.ErrDamaged) {
		t.Errorf("Load gives %v", err)
	}
	same(t, record(t), load(t, l, id))
}

func TestT15SetAsideKeepsTheNewestHundred(t *testing.T) {
	l := ledger(t)
	for i := range maxDamaged + 7 {
		write(t, filepath.Join(l.dir, id), fmt.Append(nil, i))
		if err := l.SetAside(id); err != nil {
			t.Fatal(err)
		}
	}
	var kept, want []string
	for _, name := range files(t, filepath.Join(l.dir, damagedDir)) {
		kept = append(kept, string(content(t, filepath.Join(l.dir, damagedDir, name))))
	}
	for i := range maxDamaged {
		want = append(want, fmt.Sprint(i+7))
	}
	if diff := cmp.Diff(want, kept); diff != "" || l.Damaged() != maxDamaged {
		t.Errorf("%d are kept: %s", l.Damaged(), diff)
	}
	if err := l.SetAside("none"); err != nil {
		t.Errorf("no record to set aside gives %v", err)
	}
}

func TestR4FailedSaveChangesNothing(t *testing.T) {
	big := record(t)
	big.Plan.Warnings = []string{strings.Repeat("x", 1<<20)}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string)
		next  attach.Record
		want  error
	}{
		"disk full": {func(*testing.T, string) {}, big, unix.ENOSPC},
		"read-only": {func(t *testing.T, dir string) {
			if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
		}, big, unix.EROFS},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tmpfs(t, "size=128k")
			l := New(dir, "boot")
			save(t, l, record(t))
			c.spoil(t, dir)
			for _, durable := range []bool{true, false} {
				if err := l.Save(c.next, durable); !errors.Is(err, c.want) || !strings.Contains(err.Error(), filepath.Join(dir, id)) {
					t.Errorf("the error is %v, want %v with the record's path", err, c.want)
				}
			}
			same(t, record(t), load(t, l, id))
			if got := files(t, dir); !slices.Equal(got, []string{id}) {
				t.Errorf("the folder holds %q", got)
			}
		})
	}
	t.Run("no rename", func(t *testing.T) {
		l := ledger(t)
		write(t, filepath.Join(l.dir, id, "x"), nil)
		if err := l.Save(record(t), true); err == nil {
			t.Error("a record was renamed over a folder")
		}
		if got := files(t, l.dir); !slices.Equal(got, []string{id + "/x"}) {
			t.Errorf("the folder holds %q", got)
		}
	})
}

func TestR19InvalidContainerIDsAreRefused(t *testing.T) {
	for _, bad := range []string{"", ".", "..", ".lock", "../x", "a/b", "a b", "-a", "_a", "a\n", "a\x00", "ä", "a:b", resultsDir, strings.Repeat("a", maxID+1)} {
		t.Run(bad, func(t *testing.T) {
			l := ledger(t)
			r := record(t)
			r.Sandbox.ContainerID = bad
			_, lerr := l.Load(bad)
			_, err := l.Lock(t.Context(), bad)
			for verb, err := range map[string]error{"Save": l.Save(r, true), "Load": lerr, "Lock": err, "Remove": l.Remove(bad), "SetAside": l.SetAside(bad), "Evict": l.Evict(bad)} {
				if err == nil || !strings.HasPrefix(err.Error(), "the container id ") || len(err.Error()) > 250 || errors.Is(err, attach.ErrDamaged) || errors.Is(err, attach.ErrNoRecord) {
					t.Errorf("%s gives %v", verb, err)
				}
			}
			if _, err := os.Stat(l.dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("something was written: %v", err)
			}
		})
	}
	longest := record(t)
	longest.Sandbox.ContainerID = "0" + strings.Repeat("a_.-", maxID)[:maxID-1]
	l := ledger(t)
	save(t, l, longest)
	same(t, longest, load(t, l, longest.Sandbox.ContainerID))
	lock(t, l, longest.Sandbox.ContainerID).Release()
	if err := l.SetAside(longest.Sandbox.ContainerID); err != nil {
		t.Errorf("the longest id cannot be set aside: %v", err)
	}
}

func TestR15ListNamesRecordsAlone(t *testing.T) {
	l := ledger(t)
	for _, name := range []string{"b", "a.1", "results/net-c-eth0", ".lock/c", ".damaged/d.1", ".hidden", "-dash", ".tmp-1", ".tmp-2"} {
		write(t, filepath.Join(l.dir, name), nil)
	}
	if err := os.Symlink("b", filepath.Join(l.dir, "link")); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * staleTemp)
	if err := os.Chtimes(filepath.Join(l.dir, ".tmp-1"), old, old); err != nil {
		t.Fatal(err)
	}
	ids, err := l.Sandboxes()
	if want := []string{"a.1", "b"}; err != nil || !slices.Equal(ids, want) {
		t.Errorf("list gives %q, %v, want %q", ids, err, want)
	}
	want := []string{"-dash", ".damaged/d.1", ".hidden", ".lock/c", ".tmp-2", "a.1", "b", "link", "results/net-c-eth0"}
	if diff := cmp.Diff(want, files(t, l.dir)); diff != "" {
		t.Errorf("List should remove what a killed writer left, and nothing else:\n%s", diff)
	}
	write(t, filepath.Join(l.dir, "x"), nil)
	if _, err := New(filepath.Join(l.dir, "x"), "").Sandboxes(); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a ledger that is no folder gives %v", err)
	}
}

func TestR13Place(t *testing.T) {
	l := ledger(t)
	here, err := l.Place()
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	if err := unix.Mount(l.dir, elsewhere, "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("this test needs root, to bind a folder: %v", err)
	}
	defer unix.Unmount(elsewhere, unix.MNT_DETACH)
	there, err := PlaceOf(elsewhere, BootID())
	if err != nil {
		t.Fatal(err)
	}
	if here.BootID != "boot-1" || there.BootID == "" || strings.TrimSpace(there.BootID) != there.BootID {
		t.Errorf("the boots are %q and %q", here.BootID, there.BootID)
	}
	there.Path, there.BootID = here.Path, here.BootID
	same(t, here, there)
	other, err := PlaceOf(t.TempDir(), "boot-1")
	if err != nil || other.Device == here.Device && other.Inode == here.Inode {
		t.Errorf("another folder is the same place: %+v, %v", other, err)
	}
	if _, err := PlaceOf(filepath.Join(l.dir, "none"), ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder gives %v", err)
	}
}
