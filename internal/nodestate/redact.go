package nodestate

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// removed stands where something was that is nobody else's business.
const removed = "(removed)"

// shown are the keys of a configuration whose texts are shown: what tells how a network is
// made. Everything else a plugin may be given, and with it every secret, is not; a list
// of what is secret would always lack one.
var shown = []string{
	"cniVersion", "cniVersions", "name", "type", "clusterNetwork", "defaultNetworks", "systemNamespaces", "multusNamespace", "globalNamespaces",
	"confDir", "cniDir", "binDir", "kubeconfig", "daemonSocketDir", "auxiliaryCNIChainName", "readinessindicatorfile",
	"capabilityCheck", "networkStatus", "daemonTimeout", "addTimeout", "delTimeout", "delegateTimeout", "logFile", "logLevel",
	"primaryFile", "indicatorFile", "path", "bootID",
	"bridge", "master", "device", "mode", "subnet", "rangeStart", "rangeEnd", "gateway", "dst", "gw", "range", "dataDir",
}

// suspect are keys whose values are removed whatever they are.
var suspect = regexp.MustCompile(`(?i)pass|secret|token|credential|private|auth|cert|key`)

// redact removes from a JSON text all that may be secret. A text that is not JSON goes as
// a whole.
func redact(text []byte) []byte {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return []byte(`"` + removed + `: no JSON"`)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(without(tree, false)); err != nil {
		return []byte(`"` + removed + `"`) // unreachable: it was decoded
	}
	return out.Bytes()
}

// without is a tree without what may be secret. show says that texts are shown here.
func without(node any, show bool) any {
	switch n := node.(type) {
	case map[string]any:
		for key, value := range n {
			if suspect.MatchString(key) {
				n[key] = removed
				continue
			}
			n[key] = without(value, slices.Contains(shown, key))
		}
	case []any:
		for i, value := range n {
			n[i] = without(value, show)
		}
	case string:
		if !show {
			return removed
		}
	}
	return node
}

// Secrets in a log: the value of a suspect key in JSON, quoted once more or not, a
// bearer's token, a JWT. Ours holds no configurations; Multus v4's does.
var (
	loggedValue = regexp.MustCompile(`(?i)(\\*"[^"\\]*(?:pass|secret|token|credential|private|auth|cert|key)[^"\\]*\\*"\s*:\s*)(\\*"(?:[^"\\]|\\[^"])*\\*"|[^\s,}\]]+)`)
	bearer      = regexp.MustCompile(`(?i)bearer\s+\S+`)
	jwt         = regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]*`)
)

func redactLog(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = loggedValue.ReplaceAllString(line, `${1}"`+removed+`"`)
		line = bearer.ReplaceAllString(line, "Bearer "+removed)
		out.WriteString(jwt.ReplaceAllString(line, removed))
	}
	return out.String()
}
