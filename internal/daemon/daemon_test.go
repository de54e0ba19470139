package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

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
	d.publisher.running = t.Context()
	if err := <-d.publisher.publish(plan.Pod{}, "[]"); err != nil || d.publisher.waiting() != 0 || cluster.written != nil {
		t.Errorf("error %v, %d pending, written %q", err, d.publisher.waiting(), cluster.written)
	}
}
