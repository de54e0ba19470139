package multusctl

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "rewrite the expectations of testdata/*.txtar")

// TestMain gives the scripts two commands beside the real programs: "normal" copies
// text and replaces the MACs that the kernel made up, and the programs' folder; "reach" succeeds where an
// address answers.
//
// The tests run in namespaces of their own: they compare the machine before and
// after, and the tests of other packages make links and mounts at the same time.
func TestMain(m *testing.M) {
	commands := map[string]func(){"normal": normal, "reach": reach}
	const apart = "MULTUSCTL_TEST_APART"
	_, isCommand := commands[filepath.Base(os.Args[0])]
	if isCommand || os.Getenv(apart) != "" {
		testscript.Main(m, commands)
	}
	temp, err := os.MkdirTemp("", "apart-")
	if err != nil {
		panic(err)
	}
	self := exec.Command("/proc/self/exe", os.Args[1:]...)
	self.Env = append(os.Environ(), apart+"=1", "TMPDIR="+temp)
	self.Stdin, self.Stdout, self.Stderr = os.Stdin, os.Stdout, os.Stderr
	self.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the death signal is the thread's
	err = errors.Join(self.Run(), os.RemoveAll(temp))
	if err != nil {
		fmt.Fprintln(os.Stderr, "the tests in their own namespaces:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// anyMAC finds MACs; those of the examples begin with ourMAC.
var anyMAC = regexp.MustCompile(`\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b`)

const ourMAC = "02:42:00:00:"

func normalised(text string) string {
	text = anyMAC.ReplaceAllStringFunc(text, func(mac string) string {
		if strings.HasPrefix(mac, ourMAC) {
			return mac
		}
		return "--:--:--:--:--:--"
	})
	return strings.ReplaceAll(text, os.Getenv("BIN"), "$BIN")
}

func normal() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString(normalised(string(text)))
}

// reach connects to a port on which nobody listens: the refusal comes from the far end.
func reach() {
	_, err := net.DialTimeout("tcp", net.JoinHostPort(os.Args[1], "9"), 5*time.Second)
	if !errors.Is(err, unix.ECONNREFUSED) {
		panic(err)
	}
}

// bin is where `make build plugins` puts the programs.
func bin(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"multusctl", "multus-daemon", "multus-shim", "multus", "cni/bridge"} {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			t.Fatalf("run 'make build plugins' first: %v", err)
		}
	}
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root")
	}
	return dir
}

// examples is the folder of the examples.
func examples(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestI2_Scripts(t *testing.T) {
	programs, dir := bin(t), examples(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata", UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", programs+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("BIN", programs)
			env.Setenv("EXAMPLES", dir)
			return nil
		},
	})
}

// TestI2_EveryExampleIsTried: each folder of examples has a script of its name.
func TestI2_EveryExampleIsTried(t *testing.T) {
	entries, err := os.ReadDir(examples(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		script, err := os.ReadFile("testdata/" + e.Name() + ".txtar")
		if err != nil || !strings.Contains(string(script), "multusctl try $EXAMPLES/"+e.Name()) {
			t.Errorf("example %s is not tried: %v", e.Name(), err)
		}
	}
}
