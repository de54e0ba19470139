package daemon

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/config"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/plan"
)

// readyCluster has nothing to complain of, and counts what it is told.
type readyCluster struct {
	onePod
	refused int
}

func (c *readyCluster) Problem() string          { return "" }
func (c *readyCluster) Refused(plan.Pod, string) { c.refused++ }

func newDaemon(t *testing.T) (*Daemon, *readyCluster) {
	t.Helper()
	cluster := &readyCluster{}
	cfg := &config.Config{CNIDir: filepath.Join(t.TempDir(), "state")}
	d, err := New(Options{Config: cfg, Cluster: cluster, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return d, cluster
}

// TestR13FolderMadeAnew: cniDir was removed, and the next plugin made it again.
func TestR13FolderMadeAnew(t *testing.T) {
	d, _ := newDaemon(t)
	if err := os.Rename(d.Config.CNIDir, d.Config.CNIDir+".old"); err != nil {
		t.Fatal(err)
	}
	place, err := ledger.New(d.Config.CNIDir, "").Place()
	if err != nil {
		t.Fatal(err)
	}
	if d.compare(place); d.notReady() != "" {
		t.Error(d.notReady())
	}
	place.Inode++
	if d.compare(place); d.notReady() == "" {
		t.Error("ready, although the plugin's folder is another")
	}
}

// TestR13AnotherCniDir: one caller with another cniDir does not make the daemon unready,
// once a plugin has shown that the folder is the right one.
func TestR13AnotherCniDir(t *testing.T) {
	d, _ := newDaemon(t)
	right, err := ledger.New(d.Config.CNIDir, "").Place()
	if err != nil {
		t.Fatal(err)
	}
	other, err := ledger.New(filepath.Join(t.TempDir(), "other"), "").Place()
	if err != nil {
		t.Fatal(err)
	}
	wrong := right // as where another folder of that name is mounted here
	wrong.Inode++
	for _, step := range []struct {
		what  string
		place api.Place
		ready bool
	}{
		{"another cniDir, and no plugin before", other, false},
		{"the right one", right, true},
		{"another cniDir", other, true},
		{"no place", api.Place{}, true},
		{"the same cniDir, another folder", wrong, false},
		{"another cniDir does not excuse it", other, false},
		{"the right one again", right, true},
	} {
		if d.compare(step.place); (d.notReady() == "") != step.ready {
			t.Errorf("%s: %q", step.what, d.notReady())
		}
	}

	if d.compare(wrong); d.notReady() == "" {
		t.Error("ready, although the plugin's folder is another")
	}
	// What was compared comes to be the same, and nobody asks for a plan.
	fresh, _ := newDaemon(t)
	if fresh.compare(other); fresh.notReady() == "" {
		t.Error("ready, although the plugin's folder is another")
	}
	if err := errors.Join(os.Remove(fresh.Config.CNIDir), os.Rename(other.Path, fresh.Config.CNIDir)); err != nil {
		t.Fatal(err)
	}
	if why := fresh.notReady(); why != "" {
		t.Error(why)
	}
}

// TestC1_11NoEventForTheNodesTrouble: only what is wrong with the pod is told to its owner.
func TestC1_11NoEventForTheNodesTrouble(t *testing.T) {
	d, cluster := newDaemon(t)
	d.refused(&plan.Refusal{Later: true})
	if cluster.refused != 0 {
		t.Error("an event on the pod, because the primary network's file is missing")
	}
	if d.refused(&plan.Refusal{}); cluster.refused != 1 {
		t.Errorf("%d events for a wrong request", cluster.refused)
	}
}

// TestT19NoPodToTell: a sandbox without a pod leaves nothing to be tried for ever.
func TestT19NoPodToTell(t *testing.T) {
	d, cluster := newDaemon(t)
	d.publisher.start(t.Context())
	if err := <-d.publisher.publish(plan.Pod{}, "[]"); err != nil || d.publisher.waiting() != 0 || cluster.written != nil {
		t.Errorf("error %v, %d pending, written %q", err, d.publisher.waiting(), cluster.written)
	}
}
