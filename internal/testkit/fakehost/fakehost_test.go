package fakehost_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/plan"
	"github.com/multus-thick/multus/internal/testkit/fakehost"
)

func attachment(t *testing.T, lock attach.Lock) attach.Attachment {
	t.Helper()
	c, err := cniconf.Parse([]byte(`{"name":"net-a","type":"fake","subnets":["10.1.0.0/24"]}`))
	if err != nil {
		t.Fatal(err)
	}
	return attach.Attachment{
		Attachment: plan.Attachment{Interface: "net1", Config: c},
		Sandbox:    attach.Sandbox{ContainerID: "pod-1", NetNS: "/ns"}, Lock: lock,
	}
}

// The host notes what must never happen: an engine that did it would fail its tests.
func TestT2HostNotesFaults(t *testing.T) {
	h := fakehost.New("/ns")
	p := h.Process()
	lock, err := p.Lock(t.Context(), "pod-1")
	if err != nil {
		t.Fatal(err)
	}
	a := attachment(t, lock)
	h.On("ADD net-a", func(ctx context.Context) error { return p.Del(ctx, a, nil) })
	if _, err := p.Add(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	lock.Release()
	if err := p.Del(t.Context(), a, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Del(t.Context(), attachment(t, nil), nil); err != nil {
		t.Fatal(err)
	}
	if err := p.GC(t.Context(), a.Config, nil); err != nil {
		t.Fatal(err)
	}
	want := "netns /ns\n" +
		"fault DEL net-a pod-1/net1 while ADD runs\n" +
		"fault DEL net-a pod-1/net1 without the sandbox's lock\n" +
		"fault DEL net-a pod-1/net1 without the sandbox's lock\n" +
		"fault GC net-a without the lock above all\n"
	if diff := cmp.Diff(want, h.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A dead process has given its locks back and takes no step more.
func TestT14DeadProcess(t *testing.T) {
	h := fakehost.New("/ns")
	p := h.Process()
	p.CrashAt(2, fakehost.Halfway)
	work := func() {
		lock, err := p.Lock(t.Context(), "pod-1")
		if err != nil {
			t.Error(err)
			return
		}
		defer lock.Release()
		_, _ = p.Add(t.Context(), attachment(t, lock))
		t.Error("the process goes on")
	}
	for range 2 {
		if p.Run(work) {
			t.Error("the process survived")
		}
	}
	if diff := cmp.Diff("netns /ns\nlease net-a 10.1.0.2 pod-1/net1\n", h.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff("lock pod-1\nADD net-a pod-1/net1\n", h.Transcript()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
