package confgen

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/multus-thick/multus/internal/atomicfile"
	"github.com/multus-thick/multus/internal/cniconf"
	"github.com/multus-thick/multus/internal/config"
)

// findings are what one check saw.
type findings struct {
	content []byte // what the target should hold; nil: no news, what was wanted stays wanted
	wait    string // what is waited for; "" for nothing
	gone    string // the path that is missing and was there when the target was made
}

// check looks once, and acts.
func (w *Watcher) check(ctx context.Context, now time.Time) {
	f, err := w.look(ctx)
	if err == nil {
		if f.content != nil {
			w.want = f.content
		}
		err = w.act(now, &f)
	}
	w.publish(f, err)
}

func (w *Watcher) look(ctx context.Context) (findings, error) {
	// Before the indicator is there the primary network is not worth a look.
	// The thin plugin looks for it itself, on the host.
	if indicator := w.cfg.ReadinessIndicatorFile; w.thin == nil && indicator != "" && gone(indicator) {
		return findings{wait: "waiting for the readinessindicatorfile " + indicator, gone: indicator}, nil
	}
	switch {
	case w.auto && w.resolve != nil:
		return w.lookAtClusterNetwork(ctx)
	case w.auto:
		return w.lookForPrimary()
	default:
		return w.lookAtFixed()
	}
}

// lookAtClusterNetwork generates for a primary network that the administrator names
// and that no file of multusAutoconfigDir holds. The plugin gets it as a snapshot.
func (w *Watcher) lookAtClusterNetwork(ctx context.Context) (findings, error) {
	primary, err := w.resolve(ctx)
	if err != nil {
		return findings{wait: fmt.Sprintf("waiting for the clusterNetwork %s: %v", w.cfg.ClusterNetwork, err)}, nil
	}
	in := Input{Config: w.cfg}
	w.chosen = Choice{Why: "it is the clusterNetwork " + w.cfg.ClusterNetwork + ", which only the daemon can plan"}
	if primary != nil {
		in.Primary, in.Host = *primary, &config.HostView{Snapshot: primary.Bytes()}
		w.chosen = Choice{Config: *primary, Why: "it is the clusterNetwork " + w.cfg.ClusterNetwork}
	}
	content, err := Generate(in)
	return findings{content: content}, err
}

func (w *Watcher) lookAtFixed() (findings, error) {
	content, err := readFixed(w.source)
	if errors.Is(err, fs.ErrNotExist) {
		return findings{wait: "the multusConfigFile " + w.source + " is gone", gone: w.source}, nil
	}
	if err != nil {
		return findings{}, fmt.Errorf("multusConfigFile: %w", err)
	}
	w.chosen = Choice{Why: "copied from the multusConfigFile " + w.source} // which primary network it names is its own affair
	return findings{content: content}, nil
}

// readFixed reads a multusConfigFile, and refuses a half-written one.
func readFixed(path string) ([]byte, error) {
	content, err := readRegular(path)
	if err == nil && !json.Valid(content) {
		err = fmt.Errorf("%s is not valid JSON", path)
	}
	return content, err
}

func (w *Watcher) lookForPrimary() (findings, error) {
	if w.chosen.Name == "" {
		if err := w.bringBack(); err != nil {
			return findings{}, err
		}
	}
	files, err := ReadFolder(w.source)
	if err != nil {
		return findings{}, fmt.Errorf("multusAutoconfigDir: %w", err)
	}
	choice, skipped := Choose(files, w.cfg)
	w.tellSkipped(files, skipped)
	switch {
	case choice.Name == "" && w.chosen.Name == "":
		return findings{wait: choice.Why}, nil
	case choice.Name == "" || w.chosen.Name != "" && choice.Name > w.chosen.Name:
		return w.keep(skipped), nil
	}
	if err := w.forceVersion(&choice); err != nil {
		return findings{}, err
	}
	if err := w.choose(choice); err != nil {
		return findings{}, err
	}
	content, err := w.generate(choice)
	return findings{content: content}, err
}

// keep stays with the chosen primary network although its file is not good now: a
// node does not move to another network because a file is being replaced (design
// rule 7).
func (w *Watcher) keep(skipped []Skipped) findings {
	if w.renames() {
		return findings{}
	}
	path := filepath.Join(w.source, w.chosen.Name)
	if gone(path) {
		return findings{wait: "the primary network's file " + path + " is gone", gone: path}
	}
	why := "changes"
	for _, s := range skipped {
		if s.Name == w.chosen.Name {
			why = s.Reason
		}
	}
	return findings{wait: "the primary network's file " + path + " " + why}
}

// choose moves to another primary network, or stays. Only the file of the chosen one is
// kept out of the runtime's sight.
func (w *Watcher) choose(choice Choice) error {
	former := w.chosen.Name
	w.chosen = choice
	if choice.Name == former {
		return nil
	}
	w.observer.Chosen(choice)
	if former == "" {
		return nil
	}
	return w.restore(former)
}

func (w *Watcher) tellSkipped(files []File, skipped []Skipped) {
	content := map[string]string{}
	for _, f := range files {
		content[f.Name] = string(f.Content)
	}
	for _, s := range skipped {
		told := s.Reason + "\n" + content[s.Name]
		if w.skipped[s.Name] != told {
			w.observer.Skipped(s)
		}
		w.skipped[s.Name] = told
	}
	maps.DeleteFunc(w.skipped, func(name, _ string) bool { _, there := content[name]; return !there })
}

// forceVersion rewrites the primary network's file to the configured CNI version
// (forceCNIVersion), and nothing else in it.
func (w *Watcher) forceVersion(choice *Choice) error {
	version := w.cfg.CNIVersion
	if !w.cfg.ForceCNIVersion || version == "" || choice.Config.CNIVersion() == version {
		return nil
	}
	choice.Config = choice.Config.WithCNIVersion(version)
	if w.thin != nil { // whose configuration holds the primary network's
		return nil
	}
	path, err := rewriteVersion(filepath.Join(w.source, choice.Name), version)
	if err != nil {
		return fmt.Errorf("forceCNIVersion: %w", err)
	}
	w.observer.Written(path)
	return nil
}

// rewriteVersion returns the path that it wrote: a link stays a link.
func rewriteVersion(path, version string) (string, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	object, err := cniconf.ParseObject(content)
	if err != nil {
		return "", fmt.Errorf("%s %w", path, err)
	}
	object = object.Without("cniVersions").With("cniVersion", cniconf.Quote(version))
	return path, atomicfile.Write(path, object.Bytes(), info.Mode().Perm())
}

// act brings the target to what is wanted, or withdraws it.
func (w *Watcher) act(now time.Time, f *findings) error {
	files, err := ReadFolder(w.cfg.CNIConfigDir)
	if err != nil {
		return fmt.Errorf("cniConfigDir: %w", err)
	}
	other := besides(files, filepath.Base(w.target))
	w.tellShadow(other)
	if w.inPlace {
		w.placed = w.want
		return w.finish(*f, files)
	}
	if w.lost(now, f.gone) {
		withdraw := other == ""
		if withdraw || !w.told {
			w.observer.Lost(f.gone, withdraw)
		}
		w.told = true
		if withdraw {
			return w.withdraw()
		}
	}
	if w.want == nil {
		return nil
	}
	if err := w.put(now, f, files); err != nil {
		return err
	}
	return w.finish(*f, files)
}

// finish does what follows once the target is in place, and nothing while it is not.
func (w *Watcher) finish(f findings, files []File) error {
	if f.wait != "" {
		return nil
	}
	if w.shadow == "" { // else the runtime would take that, and not ours
		if err := w.removeOthers(files); err != nil {
			return err
		}
	}
	if !w.renames() || !w.auto {
		return nil
	}
	return w.rename(w.chosen.Name, w.chosen.Name+renamedSuffix)
}

// removeOthers removes the files of ours besides the target. Another kind of
// installation left them, for thick and thin have names of their own by CNI version,
// and the runtime takes what comes first, now or when the target is withdrawn.
func (w *Watcher) removeOthers(files []File) error {
	for _, f := range files {
		if f.Name == filepath.Base(w.target) || !OwnFile(f) || OwnPlugin(f) == "" {
			continue
		}
		path := filepath.Join(w.cfg.CNIConfigDir, f.Name)
		if err := remove(path); err != nil {
			return fmt.Errorf("the configuration of another installation of Multus is in the way: %w", err)
		}
		w.observer.Removed(path)
	}
	return nil
}

// tellShadow reports a file that comes before ours.
func (w *Watcher) tellShadow(other string) {
	if other >= filepath.Base(w.target) {
		other = ""
	}
	if other != "" && other != w.shadow {
		w.observer.Shadowed(other)
	}
	w.shadow = other
}

// lost reports whether something that the target rests on is gone for good.
func (w *Watcher) lost(now time.Time, what string) bool {
	if what == "" || w.want == nil {
		w.missing, w.told = time.Time{}, false
		return false
	}
	if w.missing.IsZero() {
		w.missing = now
	}
	return now.Sub(w.missing) >= lossGrace
}

// withdraw takes the configuration away, so that the runtime has none and the node
// turns NotReady, as with any CNI plugin that is gone (design rule 6). The next
// primary network is chosen afresh.
func (w *Watcher) withdraw() error {
	w.want, w.placed, w.chosen = nil, nil, Choice{}
	if err := remove(w.target); err != nil {
		return fmt.Errorf("cannot withdraw the configuration: %w", err)
	}
	return nil
}

// put makes the target hold what is wanted.
func (w *Watcher) put(now time.Time, f *findings, files []File) error {
	disk, err := os.ReadFile(w.target)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && bytes.Equal(disk, w.want) {
		w.placed, w.foreign.pending = w.want, false
		return nil
	}
	if w.placed != nil && !bytes.Equal(disk, w.placed) {
		change := describeChange(w.target, err != nil, files)
		if !w.foreign.pending {
			w.observer.Foreign(change, w.foreign.notice(now))
		}
		if now.Before(w.foreign.until) {
			f.wait = cmp.Or(f.wait, change+"; it is put right shortly")
			return nil
		}
	}
	if err := atomicfile.Write(w.target, w.want, fileMode); err != nil {
		return err
	}
	w.placed, w.foreign.pending = w.want, false
	w.observer.Written(w.target)
	return nil
}

func describeChange(target string, removed bool, files []File) string {
	if !removed {
		return "another program changed " + target
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name, filepath.Base(target)+".") {
			return "another program removed " + target + " (there is " + f.Name + ")"
		}
	}
	return "another program removed " + target
}

// foreignChanges slows down a contest with a program that keeps undoing our work.
type foreignChanges struct {
	count       int
	last, until time.Time
	pending     bool // noticed, not put right yet
}

// notice counts a change, and returns how long to let it stand: not at all the
// first time, then one second, doubled up to backoffMax.
func (c *foreignChanges) notice(now time.Time) time.Duration {
	if now.Sub(c.last) > calmAfter {
		c.count = 0
	}
	var wait time.Duration
	if c.count > 0 {
		wait = min(time.Second<<min(c.count-1, 10), backoffMax)
	}
	c.count++
	c.last, c.until, c.pending = now, now.Add(wait), true
	return wait
}

// publish makes the outcome of a check known.
func (w *Watcher) publish(f findings, err error) {
	was := w.State()
	is := State{Choice: w.chosen, Why: cmp.Or(f.wait, w.chosen.Why), LastError: err}
	is.Ready = err == nil && f.wait == "" && w.placed != nil
	if err != nil {
		is.Why = err.Error()
		if was.LastError == nil || was.LastError.Error() != is.Why {
			w.observer.Failed(err)
		}
	} else if f.wait != "" && f.wait != was.Why {
		w.observer.Waiting(f.wait)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = is
	select {
	case <-w.looked:
	default:
		close(w.looked)
	}
}
