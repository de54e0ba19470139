package confgen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/multus-thick/multus/internal/atomicfile"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
)

const (
	recheck    = time.Second           // events can be lost, or never come from some file systems
	settling   = 50 * time.Millisecond // a file is often written in several steps
	lossGrace  = time.Second           // a replaced file may be gone for a moment
	staleAge   = time.Hour             // of temporary files
	backoffMax = time.Minute           // between putting our file right
	calmAfter  = 10 * time.Minute      // without a foreign change, the back-off starts anew
	fileMode   = fs.FileMode(0o600)    // configurations may hold secrets of the primary network
)

// Observer hears what a Watcher does, for logs and metrics: once a change, never
// once a check. Calls come from the goroutine of Run, one at a time.
type Observer interface {
	Chosen(Choice)                    // another primary network than before
	Skipped(Skipped)                  // once per content of the file
	Written(path string)              // a file was put in place
	Removed(path string)              // a file that another installation of Multus left
	Waiting(reason string)            // nothing can be generated now
	Lost(what string, withdrawn bool) // what the configuration rests on is gone; withdrawn: so is the configuration
	// Foreign: another program changed our file, which is put right after a while.
	Foreign(change string, restoreIn time.Duration)
	// Shadowed: a runtime that takes the first file takes this one, not ours.
	Shadowed(by string)
	Failed(error) // another error, or the first after a success
}

// State is what a Watcher knows now.
type State struct {
	// Ready says that the configuration is in place, and all that it rests on.
	Ready  bool
	Choice Choice
	// Why says in words what is waited for, or why this primary network was chosen.
	Why       string
	LastError error // nil when the last check went well
}

// Watcher keeps the generated configuration, or the copy of a fixed one, in place.
// Make one with New.
type Watcher struct {
	cfg      *config.Config
	observer Observer
	resolve  Resolve // nil without clusterNetwork
	thin     *Thin   // nil where the configuration is multus-shim's
	proc     string  // /proc
	auto     bool
	inPlace  bool   // the fixed file is the target itself: there is nothing to write
	source   string // folder of the primary network's file in auto mode, else the fixed file
	target   string // what is written

	mu    sync.Mutex
	state State // guarded by mu; all below belongs to the goroutine of Run

	looked  chan struct{} // closed after the first look
	chosen  Choice
	want    []byte                // what target should hold; nil while nothing is known or it was withdrawn
	placed  []byte                // what target held when we last saw it right; nil before
	skipped map[string]string     // what was told of a file: its content and the reason
	folders map[string]hostFolder // by the folder's path here
	shadow  string                // the last Shadowed
	missing time.Time             // since when something that target rests on is gone; zero for not
	told    bool                  // Lost was called
	foreign foreignChanges
}

// Resolve finds what the configured clusterNetwork stands for now. Nil says that only
// the daemon can plan it (it takes a device, for one).
type Resolve func(context.Context) (*cniconf.Config, error)

// New prepares a Watcher. resolve is used where cfg sets clusterNetwork. It fails, with one line that names key and value, where
// the configuration can never work.
func New(cfg *config.Config, observer Observer, resolve Resolve) (*Watcher, error) {
	if cfg.ClusterNetwork == "" {
		resolve = nil
	}
	w := &Watcher{resolve: resolve, cfg: cfg, observer: observer, looked: make(chan struct{}), proc: "/proc", skipped: map[string]string{}, folders: map[string]hostFolder{}}
	w.state.Why = "the first look at the configuration is under way"
	w.auto = cfg.MultusConfigFile == "auto"
	if w.auto {
		if name := cfg.MultusMasterCNI; name != "" && (name != filepath.Base(name) || !filepath.IsLocal(name)) {
			return nil, fmt.Errorf("multusMasterCNI is %q: want the bare name of a file in multusAutoconfigDir", name)
		}
		w.source = cfg.MultusAutoconfigDir
		w.target = filepath.Join(cfg.CNIConfigDir, FileName)
		return w, nil
	}
	w.source = cfg.MultusConfigFile
	w.target = filepath.Join(cfg.CNIConfigDir, filepath.Base(w.source))
	w.inPlace = same(w.source, w.target)
	if _, err := readFixed(w.source); err != nil {
		return nil, fmt.Errorf("multusConfigFile is %q: want \"auto\" or a CNI configuration file: %w", w.source, err)
	}
	return w, nil
}

// State tells how things stand. Safe for concurrent use.
func (w *Watcher) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Looked is closed once State is that of a first look, a moment after Run began.
func (w *Watcher) Looked() <-chan struct{} { return w.looked }

// Run keeps the configuration right until ctx ends. It leaves it in place then,
// except with cleanupConfigOnExit, where removing it is the last thing Run does.
func (w *Watcher) Run(ctx context.Context) error {
	_ = atomicfile.RemoveStale(w.target, staleAge) // a leftover does no harm
	w.follow(ctx)
	<-ctx.Done()
	return w.cleanUp()
}

// follow checks whenever something may have changed, until ctx ends, or until all is
// right where that is enough.
func (w *Watcher) follow(ctx context.Context) {
	var events chan fsnotify.Event
	var lost chan error
	notify, err := fsnotify.NewWatcher()
	if err == nil { // where the node is out of inotify instances, the re-check alone does
		defer notify.Close()
		events, lost = notify.Events, notify.Errors
	} else {
		w.observer.Failed(fmt.Errorf("no file events, looking every %s instead: %w", recheck, err))
	}
	tick := time.NewTicker(recheck)
	defer tick.Stop()
	settled := time.NewTimer(0)
	defer settled.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			settled.Reset(settling)
			continue
		case <-lost: //nolint:errcheck // the look finds what was lost
			settled.Reset(settling)
			continue
		case <-settled.C:
		case <-tick.C:
		}
		w.watch(notify)
		w.check(ctx, time.Now())
		if w.thin != nil && w.thin.Once && w.State().Ready {
			return
		}
	}
}

// watch subscribes to the folders that exist, and again to those made anew.
func (w *Watcher) watch(notify *fsnotify.Watcher) {
	if notify == nil {
		return
	}
	folders := []string{w.cfg.CNIConfigDir, w.source}
	if !w.auto {
		folders[1] = filepath.Dir(w.source)
	}
	if w.cfg.ReadinessIndicatorFile != "" {
		folders = append(folders, filepath.Dir(w.cfg.ReadinessIndicatorFile))
	}
	for _, dir := range folders {
		_ = notify.Add(dir) // no effect where it is watched already; the re-check covers what cannot be
	}
}

// cleanUp ends a Run. Our file goes last, and only when what the runtime takes instead
// is there.
func (w *Watcher) cleanUp() error {
	if !w.cfg.CleanupConfigOnExit || w.inPlace {
		return nil
	}
	files, err := ReadFolder(w.cfg.CNIConfigDir)
	if err == nil {
		err = w.uncover(files)
	}
	if err == nil && w.auto { // a former run may have left them
		err = w.removeOthers(files)
	}
	if err == nil {
		err = remove(w.target)
	}
	if err != nil {
		return fmt.Errorf("cleanupConfigOnExit: %w", err)
	}
	return nil
}

// remove removes a file if it is there.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
