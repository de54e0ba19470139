package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/cniconf"
)

// Names inside cniDir that are not sandboxes.
const (
	lockDir    = ".lock"
	damagedDir = ".damaged"
	resultsDir = "results" // libcni's
	tempPrefix = ".tmp-"
)

const (
	maxDamaged = 100                                         // damaged records that are kept
	staleTemp  = time.Hour                                   // age at which a temporary file is nobody's any more
	maxID      = unix.NAME_MAX - len(".1735689600000000000") // room for SetAside's time
)

// Ledger is the records of one cniDir. Safe for concurrent use, also by several
// processes; exclusion per sandbox is the caller's, through Lock.
type Ledger struct {
	dir      string
	bootID   string
	resident bool // see Resident
}

var _ attach.Ledger = (*Ledger)(nil)

// New makes a ledger in cniDir, which is created when it is first written to.
// bootID is the id of the kernel's boot.
func New(dir, bootID string) *Ledger {
	return &Ledger{dir: dir, bootID: bootID}
}

// containerID is what the CNI specification allows (section 2, CNI_CONTAINERID).
var containerID = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`)

// path is the sandbox's file. Ids become file names, so they are checked here.
func (l *Ledger) path(id string) (string, error) {
	if !containerID.MatchString(id) || id == resultsDir || len(id) > maxID {
		return "", fmt.Errorf("the container id %q is not valid: want at most %d letters, digits, \"_\", \".\" and \"-\", a letter or digit first", shorten(id), maxID)
	}
	return filepath.Join(l.dir, id), nil
}

// shorten keeps messages readable: an id comes from outside.
func shorten(id string) string {
	const longest = 80
	if len(id) <= longest {
		return id
	}
	return id[:longest] + "..."
}

// seal is our own key in the first element of a sandbox's file. The record's raw
// text has a checksum: a file that a power loss left half-written does not match.
type seal struct {
	Sum    string          `json:"sum"`
	BootID string          `json:"bootID"`
	Record json.RawMessage `json:"record"`
}

func sum(record []byte) string {
	return fmt.Sprintf("crc32c:%08x", crc32.Checksum(record, crc32.MakeTable(crc32.Castagnoli)))
}

// Save is attach.Ledger's. It replaces the file in one step; durable costs one
// fdatasync.
func (l *Ledger) Save(r attach.Record, durable bool) error {
	path, err := l.path(r.Sandbox.ContainerID)
	if err != nil {
		return err
	}
	if len(r.Plan.Attachments) == 0 {
		return fmt.Errorf("sandbox %s: a record needs an attachment", r.Sandbox.ContainerID)
	}
	text, err := l.encode(r)
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", r.Sandbox.ContainerID, err)
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return fmt.Errorf("the ledger's folder: %w", err)
	}
	if err := replace(path, text, durable); err != nil {
		return fmt.Errorf("writing the record %s: %w", path, err)
	}
	return nil
}

// replace writes a file beside its place and renames it.
func replace(path string, text []byte, durable bool) error {
	f, err := os.CreateTemp(filepath.Dir(path), tempPrefix)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil && durable {
		err = unix.Fdatasync(int(f.Fd()))
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Recorded is attach.Ledger's.
func (l *Ledger) Recorded(id string) bool {
	path, err := l.path(id)
	if err != nil {
		return true // for Load to say what is wrong
	}
	_, err = os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// Load is attach.Ledger's. An error that says nothing about the record, such as too
// many open files, is not ErrDamaged: the record is not set aside for it.
func (l *Ledger) Load(id string) (attach.Record, error) { return l.load(id, l.resultsOf) }

func (l *Ledger) load(id string, results results) (attach.Record, error) {
	path, err := l.path(id)
	if err != nil {
		return attach.Record{}, err
	}
	elements, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l.loadCached(id, results)
	}
	if err != nil {
		return attach.Record{}, err
	}
	raw, ours := elements[0].Get(sealKey)
	if !ours {
		return l.loadV4(id, elements, results)
	}
	r, err := unseal(raw)
	if err == nil && r.Sandbox.ContainerID != id {
		err = fmt.Errorf("is the record of the sandbox %q", r.Sandbox.ContainerID)
	}
	if err != nil {
		return attach.Record{}, fmt.Errorf("%w: %s %w", attach.ErrDamaged, path, err)
	}
	return r, nil
}

// read reads the JSON array of a sandbox's file. It has an element at least.
func read(path string) ([]cniconf.Object, error) {
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || passing(err):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", attach.ErrDamaged, err)
	}
	var elements []cniconf.Object
	if err := json.Unmarshal(text, &elements); err != nil {
		return nil, fmt.Errorf("%w: %s is no list of records: %w", attach.ErrDamaged, path, err)
	}
	if len(elements) == 0 {
		return nil, fmt.Errorf("%w: %s is an empty list", attach.ErrDamaged, path)
	}
	return elements, nil
}

// passing tells errors of the process or the kernel from those of a file.
func passing(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// unfinished tells whether a record says that its sandbox has something left to do.
func (l *Ledger) unfinished(id string) bool {
	elements, err := read(filepath.Join(l.dir, id))
	if err != nil {
		return false
	}
	raw, ours := elements[0].Get(sealKey)
	if !ours {
		return false
	}
	r, err := unseal(raw)
	return err == nil && r.State != attach.Attached
}

func unseal(raw []byte) (attach.Record, error) {
	var s seal
	var r attach.Record
	if err := json.Unmarshal(raw, &s); err != nil {
		return r, fmt.Errorf("has no readable key %q: %w", sealKey, err)
	}
	if sum(s.Record) != s.Sum {
		return r, errors.New("does not match its checksum")
	}
	if err := json.Unmarshal(s.Record, &r); err != nil {
		return r, fmt.Errorf("holds a record of another form: %w", err)
	}
	if len(r.Plan.Attachments) == 0 {
		return r, errors.New("holds a record without attachments")
	}
	return r, nil
}

// Remove is attach.Ledger's. A record of v4 and what libcni's cache holds of the
// sandbox go with it.
func (l *Ledger) Remove(id string) error {
	path, err := l.path(id)
	if err != nil {
		return err
	}
	r, unread := l.Load(id)
	err = os.Remove(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l.removeCached(id)
	case err != nil || unread != nil:
		return err
	}
	return l.removeResults(r)
}

// SetAside is attach.Ledger's: the file goes to the folder ".damaged", which keeps
// the newest hundred.
func (l *Ledger) SetAside(id string) error {
	path, err := l.path(id)
	if err != nil {
		return err
	}
	dir := filepath.Join(l.dir, damagedDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	aside := filepath.Join(dir, fmt.Sprintf("%s.%d", id, time.Now().UnixNano()))
	if err := os.Rename(path, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("setting a damaged record aside: %w", err)
	}
	return prune(dir)
}

// Damaged is how many damaged records are kept.
func (l *Ledger) Damaged() int {
	entries, _ := os.ReadDir(filepath.Join(l.dir, damagedDir)) // none where there is no folder
	return len(entries)
}

func prune(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) <= maxDamaged {
		return err
	}
	age := func(e os.DirEntry) string { return e.Name()[strings.LastIndexByte(e.Name(), '.')+1:] }
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(age(a), age(b)) })
	var failed []error
	for _, e := range entries[:len(entries)-maxDamaged] {
		failed = append(failed, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return errors.Join(failed...)
}

// All is attach.Ledger's. Sandboxes of which only libcni's cache is left are not among
// them: 300 000 stale results are found on real nodes, none of their names tells the
// sandbox for certain, and to open them all takes too long. Load finds them by id.
func (l *Ledger) All() ([]attach.Listed, error) {
	ids, err := l.Sandboxes()
	all := make([]attach.Listed, len(ids))
	results := l.resultsOfAll(ids)
	for i, id := range ids {
		rec, err := l.load(id, results)
		all[i] = attach.Listed{ContainerID: id, Record: rec, Err: err}
	}
	return all, err
}

// Sandboxes names the sandboxes with a file of their own. Temporary files that nobody
// finishes are removed on the way.
func (l *Ledger) Sandboxes() ([]string, error) {
	entries, err := os.ReadDir(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the ledger's folder: %w", err)
	}
	var ids []string
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), tempPrefix):
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > staleTemp {
				_ = os.Remove(filepath.Join(l.dir, e.Name())) // another process may have been first
			}
		case e.Type().IsRegular():
			if _, err := l.path(e.Name()); err == nil {
				ids = append(ids, e.Name())
			}
		}
	}
	return ids, nil
}

// encode writes the file: v4's records with our own in the first of them. What was
// raw JSON in the record stays as it was written, byte for byte.
func (l *Ledger) encode(r attach.Record) ([]byte, error) {
	record, err := cniconf.Marshal(r)
	if err != nil {
		return nil, err
	}
	elements, err := toV4(r)
	if err != nil {
		return nil, err
	}
	elements[0] = elements[0].With(sealKey, cniconf.Quote(seal{Sum: sum(record), BootID: l.bootID, Record: record}))
	return cniconf.Quote(elements), nil
}
