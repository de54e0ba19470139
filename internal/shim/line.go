package shim

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/multus-thick/multus/api"
	"github.com/multus-thick/multus/internal/plan"
)

// LogReport writes the one line of an operation, the same in the plugin's log and in the
// daemon's.
func LogReport(log *slog.Logger, r api.Report) {
	line := []any{"sandbox", r.ContainerID}
	if r.Pod != (api.Pod{}) {
		line = append([]any{"pod", plan.Pod(r.Pod).String()}, line...)
	}
	if len(r.Attachments) > 0 {
		line = append(line, "networks", lineNetworks(r))
	}
	line = append(line, "millis", r.Millis)
	if r.Error == nil {
		log.Info(r.Verb, line...)
		return
	}
	log.Error(r.Verb+" failed", append(line, "code", r.Error.Code, "error", r.Error.Msg)...)
}

// lineNetworks are the networks of a report on its line: objects in JSON, and words in text.
type lineNetworks api.Report

// lineNetwork is one of them. Only an ADD knows how long each took.
type lineNetwork struct {
	Network   string   `json:"network"`
	Interface string   `json:"interface"`
	Addresses []string `json:"addresses,omitempty"`
	Millis    *int64   `json:"millis,omitempty"`
	Failed    bool     `json:"failed,omitempty"`
}

func (n lineNetworks) list() []lineNetwork {
	var all []lineNetwork
	for _, a := range n.Attachments {
		one := lineNetwork{Network: a.Network, Interface: a.Interface, Addresses: a.Addresses}
		if n.Verb == "ADD" {
			one.Millis, one.Failed = &a.Millis, a.Failed
		}
		all = append(all, one)
	}
	return all
}

// MarshalJSON is for logFormat json.
func (n lineNetworks) MarshalJSON() ([]byte, error) { return json.Marshal(n.list()) }

// MarshalText is for logFormat text: "NETWORK:INTERFACE ADDRESS... 12ms, ...".
func (n lineNetworks) MarshalText() ([]byte, error) {
	var all []string
	for _, one := range n.list() {
		words := append([]string{one.Network + ":" + one.Interface}, one.Addresses...)
		if one.Millis != nil {
			words = append(words, fmt.Sprintf("%dms", *one.Millis))
		}
		if one.Failed {
			words = append(words, "failed")
		}
		all = append(all, strings.Join(words, " "))
	}
	return []byte(strings.Join(all, ", ")), nil
}
