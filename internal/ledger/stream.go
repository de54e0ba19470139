package ledger

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/plan"
)

// batch is how many names of a folder are in memory at once. Real nodes have hundreds of
// thousands of stale files there.
const batch = 256

// inBatches streams the names in a folder, in no order. A folder that is missing is empty.
func inBatches(dir string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		f, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			yield("", err)
			return
		}
		defer f.Close()
		for {
			names, err := f.Readdirnames(batch)
			for _, name := range names {
				if !yield(name, nil) {
					return
				}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield("", err)
				}
				return
			}
		}
	}
}

// Each streams what the files of sandboxes say, ours and v4's, in no order. It does not
// look into libcni's cache, so of what v4 left neither pod nor namespace are known, and
// Created is when the file was written. An error that names a sandbox in the record is
// about that file alone; one that does not is the last.
func (l *Ledger) Each() iter.Seq2[attach.Record, error] {
	return func(yield func(attach.Record, error) bool) {
		for name, err := range inBatches(l.dir) {
			if err != nil {
				yield(attach.Record{}, fmt.Errorf("the ledger's folder: %w", err))
				return
			}
			if _, err := l.path(name); err != nil {
				continue // hidden, or no sandbox
			}
			rec, err := l.Open(name)
			if !errors.Is(err, attach.ErrNoRecord) && !yield(rec, err) {
				return
			}
		}
	}
}

// Results streams the results in libcni's cache, in no order, each as a record of one
// attachment whose Created is when the file was written. Damaged files, the runtime's own
// results and what else is no result of a delegate are passed over. An error is the last.
func (l *Ledger) Results() iter.Seq2[attach.Record, error] {
	return func(yield func(attach.Record, error) bool) {
		for name, err := range inBatches(filepath.Join(l.dir, resultsDir)) {
			if err != nil {
				yield(attach.Record{}, fmt.Errorf("libcni's result cache: %w", err))
				return
			}
			rec, err := l.Open(filepath.Join(resultsDir, name))
			if err == nil && !yield(rec, nil) {
				return
			}
		}
	}
}

// Name is the file, below cniDir, that a record of Each or Results was read from.
func Name(r attach.Record) string {
	if r.Origin != attach.Cache {
		return r.Sandbox.ContainerID
	}
	return filepath.Join(resultsDir, cacheName(r, r.Plan.Attachments[0]))
}

// cacheName is libcni's name of a result.
func cacheName(r attach.Record, a plan.Attachment) string {
	return a.Config.Name() + "-" + r.Sandbox.ContainerID + "-" + a.Interface
}

// Open reads one file by its Name, as Each and Results do. A file that is gone, or is
// no such file, gives attach.ErrNoRecord.
func (l *Ledger) Open(name string) (attach.Record, error) {
	if dir, file := filepath.Split(name); dir == resultsDir+"/" {
		return l.openResult(file)
	}
	path, err := l.path(name)
	if err != nil {
		return attach.Record{}, fmt.Errorf("%w: %w", attach.ErrNoRecord, err)
	}
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return attach.Record{}, attach.ErrNoRecord
	}
	unread := attach.Record{Sandbox: attach.Sandbox{ContainerID: name}, Created: info.ModTime()}
	elements, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return attach.Record{}, attach.ErrNoRecord
	}
	if err != nil {
		return unread, err
	}
	if raw, ours := elements[0].Get(sealKey); ours {
		rec, err := unseal(raw)
		if err != nil {
			return unread, fmt.Errorf("%w: %s %w", attach.ErrDamaged, path, err)
		}
		return rec, nil
	}
	rec := foreign(name, attach.FromV4)
	rec.Created = info.ModTime()
	for i, obj := range elements {
		a, err := fromV4(i, obj)
		if err != nil {
			return unread, fmt.Errorf("%w: %s: element %d %w", attach.ErrDamaged, path, i+1, err)
		}
		rec.Plan.Attachments, rec.Outcomes = append(rec.Plan.Attachments, a), append(rec.Outcomes, attach.Outcome{})
	}
	return rec, nil
}

func (l *Ledger) openResult(file string) (attach.Record, error) {
	path := filepath.Join(l.dir, resultsDir, file)
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return attach.Record{}, attach.ErrNoRecord
	}
	c, err := readCached(path)
	if err != nil || c.runtimes() {
		return attach.Record{}, attach.ErrNoRecord
	}
	rec := foreign(c.ContainerID, attach.Cache)
	rec.Created = info.ModTime()
	c.addTo(&rec, plan.Attachment{Role: plan.Secondary, Network: c.NetworkName})
	if _, err := l.path(c.ContainerID); err != nil || filepath.Base(Name(rec)) != file {
		return attach.Record{}, attach.ErrNoRecord // no file of libcni's is called so
	}
	return rec, nil
}

// runtimes tells the runtime's own results, where cniDir is the runtime's folder.
func (c cacheEntry) runtimes() bool { return c.config.HasType("multus", "multus-shim") }

// Forget is attach.Ledger's.
func (l *Ledger) Forget(r attach.Record) error { return l.removeResults(r) }
