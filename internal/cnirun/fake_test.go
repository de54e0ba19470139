package cnirun

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/cniconf"
)

// TestMain is also the fake plugin: tests link the test binary under a plugin's
// name. It acts as its script says, a file in the folder FAKE_DIR.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("FAKE_ROLE") == "descendant":
		stay()
	case os.Getenv("FAKE_ROLE") == "caller":
		actAsCaller()
	case os.Getenv("CNI_COMMAND") != "":
		os.Exit(actAsPlugin())
	default:
		os.Exit(m.Run())
	}
}

// script is what a fake plugin does for one verb.
type script struct {
	Stdout string
	Stderr string
	Exit   int
	Signal int    // ends itself with this signal
	Flood  int    // MiB on stdout
	Fifo   string // meet the test at this FIFO, then wait until it leaves
	// Descendant starts a child that stays for ever, with the plugin's stdout and lock.
	Descendant bool
	Hang       bool // stay for ever
}

// record is what a fake plugin saw.
type record struct {
	Plugin string
	Verb   string
	Env    map[string]string // CNI_ and FAKE_MARK
	Stdin  json.RawMessage
	LockFD bool
}

func actAsPlugin() int {
	dir, plugin, verb := os.Getenv("FAKE_DIR"), filepath.Base(os.Args[0]), os.Getenv("CNI_COMMAND")
	stdin, _ := io.ReadAll(os.Stdin)
	env := map[string]string{}
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "CNI_") || name == "FAKE_MARK" {
			env[name] = value
		}
	}
	inherited, _ := os.Readlink("/proc/self/fd/3")
	log, _ := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	line := json.NewEncoder(log)
	line.SetEscapeHTML(false)
	line.Encode(record{plugin, verb, env, stdin, inherited == filepath.Join(dir, "lock")})
	log.Close()

	var s map[string]script
	if raw, err := os.ReadFile(filepath.Join(dir, plugin+".json")); err == nil {
		if err := json.Unmarshal(raw, &s); err != nil {
			panic(err)
		}
	}
	return s[verb].play()
}

func (s script) play() int {
	if s.Descendant {
		child := exec.Command("/proc/self/exe")
		child.Env = []string{"FAKE_ROLE=descendant"}
		child.Stdout, child.ExtraFiles = os.Stdout, []*os.File{os.NewFile(3, "lock")}
		up, _ := child.StderrPipe()
		if err := child.Start(); err != nil {
			panic(err)
		}
		up.Read(make([]byte, 1))
		os.WriteFile(filepath.Join(os.Getenv("FAKE_DIR"), "descendant"), []byte(strconv.Itoa(child.Process.Pid)), 0o600)
	}
	io.WriteString(os.Stderr, s.Stderr)
	io.WriteString(os.Stdout, s.Stdout)
	for range s.Flood {
		os.Stdout.Write(make([]byte, 1<<20))
	}
	if s.Fifo != "" {
		meet, err := os.Open(s.Fifo)
		if err != nil {
			panic(err)
		}
		io.Copy(io.Discard, meet)
	}
	if s.Signal != 0 {
		unix.Kill(os.Getpid(), unix.Signal(s.Signal))
		stay()
	}
	if s.Hang {
		stay()
	}
	return s.Exit
}

// stay says that it is there and never returns.
func stay() {
	os.Stderr.WriteString("x\n")
	var fds [2]int
	unix.Pipe(fds[:])
	unix.Read(fds[0], make([]byte, 1))
}

// rig is a folder of fake plugins and a runner on it.
type rig struct {
	*testing.T
	dir string
	Options
}

func newRig(t *testing.T, plugins map[string]map[string]script) *rig {
	t.Helper()
	r := &rig{T: t, dir: t.TempDir()}
	bin := filepath.Join(r.dir, "bin")
	r.must(os.Mkdir(bin, 0o755))
	self, err := os.Executable()
	r.must(err)
	for name, s := range plugins {
		r.must(os.Symlink(self, filepath.Join(bin, name)))
		r.write(name+".json", string(cniconf.Quote(s)))
	}
	r.Options = Options{
		Path: []string{bin}, CacheDir: filepath.Join(r.dir, "cache"),
		Env: []string{"FAKE_DIR=" + r.dir, "FAKE_MARK=kept", "CNI_IFNAME=stale", "CNI_CONTAINERID=stale"},
	}
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) write(name, content string) string {
	path := filepath.Join(r.dir, name)
	r.must(os.WriteFile(path, []byte(content), 0o600))
	return path
}

// log returns what the plugins saw since the last call.
func (r *rig) log() []record {
	r.Helper()
	raw, err := os.ReadFile(filepath.Join(r.dir, "log"))
	if os.IsNotExist(err) {
		return nil
	}
	r.must(err)
	r.must(os.Remove(filepath.Join(r.dir, "log")))
	var all []record
	for line := range strings.Lines(string(raw)) {
		var one record
		r.must(json.Unmarshal([]byte(line), &one))
		all = append(all, one)
	}
	return all
}

func parse(t *testing.T, raw string) cniconf.Config {
	t.Helper()
	c, err := cniconf.Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return c
}
