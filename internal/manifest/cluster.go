package manifest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/multus-thick/multus/internal/atomicfile"
	"github.com/multus-thick/multus/internal/audit"
	"github.com/multus-thick/multus/internal/gather"
	"github.com/multus-thick/multus/internal/plan"
)

// IsFolder tells whether the value of the configuration's key kubeconfig names a
// folder, which then stands for the API.
func IsFolder(kubeconfig string) bool {
	info, err := os.Stat(kubeconfig)
	return err == nil && info.IsDir()
}

// Run is daemon.Cluster's: there is nothing to keep up to date.
func (f *Folder) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Problem is daemon.Cluster's: files are never out of reach.
func (f *Folder) Problem() string { return "" }

// LastSync is daemon.Cluster's: files are read when they are asked for.
func (f *Folder) LastSync() time.Time { return time.Now() }

// PatchStatus writes the text of the pod's network-status annotation to the folder's
// file status/<namespace>/<name>.json, atomically.
func (f *Folder) PatchStatus(_ context.Context, pod plan.Pod, text string) error {
	known, ok := f.Cached(pod.Namespace, pod.Name)
	if !ok || known.UID != pod.UID {
		return fmt.Errorf("pod %s with UID %s: %w in the manifests", pod, pod.UID, gather.ErrNotFound)
	}
	path := StatusFile(f.dir, pod.Namespace, pod.Name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("pod %s: %w", pod, err)
	}
	return atomicfile.Write(path, []byte(text), 0o644)
}

// StatusFile is where PatchStatus puts a pod's annotation.
func StatusFile(dir, namespace, name string) string {
	return filepath.Join(dir, "status", namespace, name+".json")
}

// Added is daemon.Cluster's. A folder keeps no events.
func (f *Folder) Added(plan.Pod, string, []string, string) {}

// Follow is daemon.Cluster's: nothing changes.
func (f *Folder) Follow(func(namespace, name string), func()) {}

// LivePods is daemon.Cluster's.
func (f *Folder) LivePods(context.Context) ([]gather.Pod, error) { return f.Pods(), nil }

// Life is daemon.Cluster's. A folder does not tell how pods run.
func (f *Folder) Life(context.Context, plan.Pod) (audit.Life, error) {
	return audit.Life{Phase: audit.Exempt}, nil
}

// Evict is daemon.Cluster's. Nobody would carry it out.
func (f *Folder) Evict(context.Context, plan.Pod) error {
	return errors.New("a folder of manifests cannot evict pods")
}

// ReportNetworks is daemon.Cluster's. A folder has no place for it.
func (f *Folder) ReportNetworks(context.Context, plan.Pod, string) error { return nil }

// Note is daemon.Cluster's. A folder keeps no events.
func (f *Folder) Note(plan.Pod, string, string) {}

// Warn is daemon.Cluster's. A folder keeps no events.
func (f *Folder) Warn(plan.Pod, string, string) {}

// Refused is daemon.Cluster's. A folder keeps no events.
func (f *Folder) Refused(plan.Pod, string) {}

// Disturbed is daemon.Cluster's. A folder keeps no events.
func (f *Folder) Disturbed(string) {}
