package nodestate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/ledger"
	"github.com/multus-thick/multus/internal/version"
)

// askTimeout is how long the daemon, and a plugin that is asked for its version, may take.
const askTimeout = 5 * time.Second

// State is how Multus stands on the node.
type State struct {
	// Version is that of the program that looks.
	Version string   `json:"version"`
	Paths   Paths    `json:"paths"`
	Config  Config   `json:"config"`
	Daemon  Daemon   `json:"daemon"`
	Records []Record `json:"records"`
	// RecordsError says why the ledger cannot be read.
	RecordsError string `json:"recordsError,omitempty"`
	// KeptDamaged is how many damaged records were set aside and are kept.
	KeptDamaged int `json:"keptDamaged,omitempty"`
}

// Daemon is what the daemon tells.
type Daemon struct {
	Socket string `json:"socket"`
	// Away says that nobody answers at the socket.
	Away  bool       `json:"away,omitempty"`
	Error string     `json:"error,omitempty"`
	State *api.State `json:"state,omitempty"` // nil where it does not answer
}

// Read looks at the node.
func Read(ctx context.Context, p Paths) State {
	s := State{Version: version.Get().String(), Paths: p, Config: ReadConfig(p), Daemon: ask(ctx, p)}
	if told := s.Daemon.State; told != nil && told.Primary.Why != "" {
		s.Config.Primary.Why = told.Primary.Why
	}
	records, err := ReadRecords(p)
	s.Records = records
	if err != nil {
		s.RecordsError = err.Error()
	}
	s.KeptDamaged = ledger.New(p.CNIDir, "").Damaged()
	return s
}

func ask(ctx context.Context, p Paths) Daemon {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	d := Daemon{Socket: filepath.Join(p.SocketDir, api.SocketName)}
	client := api.NewClient(p.SocketDir)
	defer client.Close()
	raw, err := client.Get(ctx, api.PathState)
	if err == nil {
		d.State = new(api.State)
		err = json.Unmarshal(raw, d.State)
	}
	if err != nil {
		d.State, d.Error = nil, err.Error()
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			d.Away, d.Error = true, fmt.Sprintf("nobody answers on %s: %v", d.Socket, dial.Err)
		}
	}
	return d
}

// Of narrows the records down to those of a pod, "name" or "namespace/name".
func (s State) Of(pod string) (State, error) {
	s.Records = slices.DeleteFunc(slices.Clone(s.Records), func(r Record) bool { return r.Pod.Name != pod && r.Pod.String() != pod })
	if len(s.Records) == 0 {
		return s, fmt.Errorf("no record of a pod %s on this node", pod)
	}
	return s, nil
}

// count counts the records of which something is true.
func (s State) count(is func(Record) bool) (n int) {
	for _, r := range s.Records {
		if is(r) {
			n++
		}
	}
	return n
}

// Summary counts the records: attached, unfinished, damaged.
func (s State) Summary() (attached, unfinished, damaged int) {
	damaged = s.count(func(r Record) bool { return r.Damaged != "" })
	attached = s.count(func(r Record) bool { return r.State == attach.Attached })
	return attached, len(s.Records) - attached - damaged, damaged
}
