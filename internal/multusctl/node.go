package multusctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/trial"
)

// linkFD is the node's end of the socket to the multusctl that started it.
const linkFD = 3

// nodeCommand is the node's first process.
func nodeCommand(stdin *os.File) *cobra.Command {
	return &cobra.Command{Use: "node REQUEST", Hidden: true, Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		var req tryRequest
		if err := json.Unmarshal([]byte(args[0]), &req); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(cmd.Context())
		defer cancel()
		t := &try{tryRequest: req, stdin: stdin, out: cmd.OutOrStdout(), link: os.NewFile(linkFD, "multusctl"), kept: make(chan struct{})}
		go func() { // the one who asked is gone
			_, _ = t.link.Read(make([]byte, 1))
			select {
			case <-t.kept:
			default:
				cancel()
			}
		}()
		err := t.run(ctx)
		if t.Verbose {
			t.logs(cmd.ErrOrStderr())
		}
		return err
	}}
}

// try is one run of the command.
type try struct {
	tryRequest
	stdin  *os.File
	out    io.Writer
	link   *os.File
	kept   chan struct{} // closed when the node outlives the one who asked
	pid    int
	node   *trial.Node
	report report
}

// report is the JSON form of a try (docs/try.md).
type report struct {
	Pods     []trial.Pod `json:"pods"`
	Warnings []string    `json:"warnings,omitempty"`
	// Left is what could not be taken down; absent where the node is kept.
	Left []string `json:"left,omitempty"`
	// Kept is the process that holds a kept node.
	Kept int `json:"kept,omitempty"`
}

func (t *try) run(ctx context.Context) error {
	folder, err := trial.Read(t.Dir)
	if err != nil {
		return err
	}
	t.report.Warnings = folder.Warnings
	if t.pid, err = trial.Enter(folder); err != nil {
		return err
	}
	if t.node, err = trial.Start(ctx, folder, t.Options); err != nil {
		return err
	}
	err = t.attachAll(ctx, folder)
	if err == nil {
		err = t.execAll(ctx)
	}
	if err == nil && t.Keep {
		return t.stay(ctx)
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return t.finish(ctx, err)
}

func (t *try) attachAll(ctx context.Context, folder *trial.Folder) error {
	for _, pod := range folder.Pods() {
		p, err := t.node.Attach(ctx, pod)
		if err != nil {
			return err
		}
		t.report.Pods = append(t.report.Pods, p)
		if t.Output == asText {
			printPod(t.out, p)
		}
	}
	return nil
}

// execAll runs the commands of --exec; those for a pod that was not attached have
// nowhere to run.
func (t *try) execAll(ctx context.Context) error {
	for _, c := range t.Execs {
		for i := range t.report.Pods {
			p := &t.report.Pods[i]
			if p.String() != c.Pod || p.Error != nil {
				continue
			}
			var kept bytes.Buffer
			out := io.Writer(&kept)
			if t.Output == asText {
				fmt.Fprintf(t.out, "%s $ %s\n", p, c.Command)
				out = t.out
			}
			done, err := t.node.Exec(ctx, *p, c.Command, t.stdin, out)
			if err != nil {
				return err
			}
			if t.Output == asText {
				printExit(t.out, done)
			}
			done.Output = kept.String()
			p.Execs = append(p.Execs, done)
		}
	}
	return nil
}

// finish takes the node down and tells how all went.
func (t *try) finish(ctx context.Context, err error) error {
	var stopErr error
	t.report.Left, stopErr = t.node.Stop(context.WithoutCancel(ctx))
	if t.Output == asJSON {
		err = errors.Join(err, printJSON(t.out, t.report))
	} else {
		printLeft(t.out, t.report.Left)
	}
	if err = errors.Join(err, stopErr); err != nil {
		return err
	}
	return code(t.report.exitCode())
}

// stay lets the one who asked go, and takes the node down when this process is told
// to end.
func (t *try) stay(ctx context.Context) error {
	t.report.Kept = t.pid
	if t.Output == asJSON {
		if err := printJSON(t.out, t.report); err != nil {
			return err
		}
	} else {
		printKept(t.out, t.pid, t.report.Pods[0])
	}
	close(t.kept)
	if _, err := t.link.Write([]byte{byte(t.report.exitCode())}); err != nil {
		return err
	}
	if err := t.detachTerminal(); err != nil {
		return err
	}
	<-ctx.Done()
	_, err := t.node.Stop(context.WithoutCancel(ctx))
	return err
}

// detachTerminal leaves the terminal, and the pipes of the one who asked, alone.
func (t *try) detachTerminal() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	_, err = unix.Setsid()
	for fd := range 3 {
		err = errors.Join(err, unix.Dup3(int(null.Fd()), fd, 0))
	}
	return err
}

// exitCode is 1 where a pod could not be attached, a command failed, or something was
// not given back.
func (r report) exitCode() int {
	bad := len(r.Left) > 0
	for _, p := range r.Pods {
		bad = bad || p.Error != nil
		for _, e := range p.Execs {
			bad = bad || e.ExitCode != 0
		}
	}
	if bad {
		return 1
	}
	return 0
}

func (t *try) logs(w io.Writer) {
	for _, path := range trial.Logs() {
		text, err := os.ReadFile(path)
		if err == nil {
			fmt.Fprintf(w, "--- %s\n%s", path, text)
		}
	}
}
