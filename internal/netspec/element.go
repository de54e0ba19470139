package netspec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// What would be right, for each kind of value of a selection element.
const (
	rightElement   = `an object such as {"name": "net-a"}`
	rightName      = `the name of a NetworkAttachmentDefinition: lower-case letters, digits, "-" and ".", at most 253`
	rightNamespace = `the name of a namespace: lower-case letters, digits and "-", at most 63`
	rightInterface = `an interface name of at most 15 bytes without space, "/", ":" and "%"`
	rightIP        = `an IP address with or without prefix length, such as "10.1.2.3/24"`
	rightGateway   = "an IP address without prefix length"
	rightMAC       = `a hardware address such as "02:00:00:00:00:01"`
	rightGUID      = `a GUID of eight bytes such as "00:11:22:33:44:55:66:77"`
	rightText      = "a text"
	rightPort      = "a port number from 0 to 65535"
	rightRate      = "a whole number, not negative"
	rightObject    = "an object"
)

// parseElement reads one selection element (multi-net-spec 4.1.2). A member that is
// wrong is left out of the selection. Keys without a dot that nobody knows are
// listed and no problem, as v4 ignores them; keys with a dot are extensions.
func parseElement(number int, raw json.RawMessage, namespace string) (Selection, []Problem) {
	var s Selection
	var problems []Problem
	o := object{report: func(key, wrong, right string) {
		problems = append(problems, Problem{Element: number, Key: key, Wrong: wrong, Right: right})
	}}
	if !o.open(raw, rightElement) {
		return s, problems
	}
	if _, ok := o.member("name"); !ok {
		o.report("name", "is missing", rightName)
	}
	s.Name, _ = read(o, "name", rightName, isSubdomain)
	s.Namespace = namespace
	if raw, ok := o.member("namespace"); ok && string(raw) != `""` {
		s.Namespace = o.text("namespace", rightNamespace, isLabel)
	}
	s.Interface = o.interfaceName()
	s.IPs, _ = list(o, "ips", "a list of IP addresses", rightIP, isAddress)
	s.MAC = o.text("mac", rightMAC, func(v string) bool { return macLength(v) > 0 })
	s.InfinibandGUID = o.text("infiniband-guid", rightGUID, func(v string) bool { return macLength(v) == 8 })
	s.PortMappings = o.portMappings()
	s.Bandwidth = o.bandwidth()
	s.DeviceID = o.text("deviceID", rightText, anyText)
	s.CNIArgs = o.cniArgs()
	s.DefaultRoute = o.defaultRoute()
	s.IPAMClaimReference = o.text("ipam-claim-reference", rightText, anyText)
	s.Extensions, s.Unknown = o.extensions()
	for i := range problems {
		problems[i].Network = s.known()
	}
	return s, problems
}

// object is a JSON object under strict reading: report hears of every member that is
// not as it should be.
type object struct {
	members map[string]json.RawMessage
	report  func(key, wrong, right string)
}

// open reads the members. A value that is no object is reported without a key.
func (o *object) open(raw json.RawMessage, right string) bool {
	if err := json.Unmarshal(raw, &o.members); err != nil || o.members == nil {
		o.report("", "found "+Found(raw), right)
		return false
	}
	return true
}

// inside is the reader of an object that is the value of key, or one entry of it
// (from 1; 0 for none).
func (o object) inside(key string, entry int) object {
	return object{report: func(member, wrong, right string) {
		link := " as "
		if member != "" {
			wrong += link + strconv.Quote(member)
			link = " of "
		}
		if entry > 0 {
			wrong += fmt.Sprintf("%sentry %d", link, entry)
		}
		o.report(key, wrong, right)
	}}
}

// member finds a key that is there and not null: in its exact spelling, else in any
// case, as v4's decoder did.
func (o object) member(key string) (json.RawMessage, bool) {
	raw, ok := o.members[key]
	if !ok {
		for _, other := range slices.Sorted(maps.Keys(o.members)) {
			if strings.EqualFold(other, key) {
				raw, ok = o.members[other], true
				break
			}
		}
	}
	return raw, ok && string(raw) != "null"
}

// read decodes a member, and reports it where it is of the wrong type or not valid.
func read[T any](o object, key, right string, valid func(T) bool) (v T, ok bool) {
	raw, ok := o.member(key)
	if !ok {
		return v, false
	}
	if err := json.Unmarshal(raw, &v); err != nil || !valid(v) {
		o.report(key, "found "+Found(raw), right)
		var zero T
		return zero, false
	}
	return v, true
}

// list is read for the entries of a list, each of which is reported alone.
func list[T any](o object, key, right, rightEntry string, valid func(T) bool) (values []T, ok bool) {
	entries, ok := read(o, key, right, func([]json.RawMessage) bool { return true })
	for i, raw := range entries {
		var v T
		if err := json.Unmarshal(raw, &v); err != nil || !valid(v) {
			o.report(key, fmt.Sprintf("found %s as entry %d", Found(raw), i+1), rightEntry)
			continue
		}
		values = append(values, v)
	}
	return values, ok
}

// text reads a text. An empty one counts as absent, as in v4.
func (o object) text(key, right string, valid func(string) bool) string {
	v, _ := read(o, key, right, func(v string) bool { return v == "" || valid(v) })
	return v
}

// number reads a whole number from 0 to most.
func (o object) number(key, right string, most int) int {
	v, _ := read(o, key, right, func(n int) bool { return n >= 0 && n <= most })
	return v
}

// interfaceName reads the requested interface name and its deprecated alias.
func (o object) interfaceName() string {
	name := o.text("interface", rightInterface, isInterface)
	alias := o.text("interfaceRequest", rightInterface, isInterface)
	if name == "" {
		return alias
	}
	if alias != "" && alias != name {
		o.report("interfaceRequest", fmt.Sprintf("found %q, and %q as \"interface\"", alias, name), `"interface" alone`)
	}
	return name
}

func (o object) portMappings() (mappings []PortMapping) {
	const key = "portMappings"
	entries, _ := read(o, key, "a list of objects", func([]json.RawMessage) bool { return true })
	for i, raw := range entries {
		m := o.inside(key, i+1)
		if m.open(raw, `an object such as {"hostPort": 8080, "containerPort": 80}`) {
			mappings = append(mappings, PortMapping{
				HostPort:      m.number("hostPort", rightPort, math.MaxUint16),
				ContainerPort: m.number("containerPort", rightPort, math.MaxUint16),
				Protocol:      m.text("protocol", rightText, anyText),
				HostIP:        m.text("hostIP", rightText, anyText),
			})
		}
	}
	return mappings
}

func (o object) bandwidth() *Bandwidth {
	const key = "bandwidth"
	raw, ok := o.member(key)
	b := o.inside(key, 0)
	if !ok || !b.open(raw, rightObject) {
		return nil
	}
	return &Bandwidth{
		IngressRate:  b.number("ingressRate", rightRate, math.MaxInt),
		IngressBurst: b.number("ingressBurst", rightRate, math.MaxInt),
		EgressRate:   b.number("egressRate", rightRate, math.MaxInt),
		EgressBurst:  b.number("egressBurst", rightRate, math.MaxInt),
	}
}

// cniArgs keeps the raw text of each value: numbers keep their digits.
func (o object) cniArgs() map[string]json.RawMessage {
	args, _ := read(o, "cni-args", rightObject, func(map[string]json.RawMessage) bool { return true })
	if len(args) == 0 {
		return nil
	}
	for name, value := range args {
		args[name] = compact(value)
	}
	return args
}

// defaultRoute is nil where the key is absent; an empty list is kept.
func (o object) defaultRoute() *[]netip.Addr {
	gateways, ok := list(o, "default-route", "a list of IP addresses", rightGateway,
		func(a netip.Addr) bool { return a.IsValid() && a.Zone() == "" })
	if !ok {
		return nil
	}
	unmapped := make([]netip.Addr, len(gateways))
	for i, a := range gateways {
		unmapped[i] = a.Unmap()
	}
	return &unmapped
}

// elementKeys are the keys of a selection element, sorted.
var elementKeys = []string{
	"bandwidth", "cni-args", "default-route", "deviceID", "infiniband-guid", "interface", "interfaceRequest",
	"ipam-claim-reference", "ips", "mac", "name", "namespace", "portMappings",
}

func (o object) extensions() (found map[string]json.RawMessage, unknown []string) {
	for _, key := range slices.Sorted(maps.Keys(o.members)) {
		isKey := func(known string) bool { return strings.EqualFold(known, key) }
		switch {
		case strings.Contains(key, "."):
			if found == nil {
				found = map[string]json.RawMessage{}
			}
			found[key] = compact(o.members[key])
		case !slices.ContainsFunc(elementKeys, isKey):
			unknown = append(unknown, key)
		}
	}
	return found, unknown
}

func compact(raw json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return raw // unreachable: the value was decoded from JSON
	}
	return b.Bytes()
}

func anyText(string) bool { return true }

// isLabel tells a DNS-1123 label (RFC 1123, as Kubernetes names namespaces).
func isLabel(s string) bool { return len(s) <= 63 && isDNSName(s) }

// isSubdomain tells a DNS-1123 subdomain, as Kubernetes names most objects.
func isSubdomain(s string) bool {
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !isDNSName(label) {
			return false
		}
	}
	return true
}

func isDNSName(s string) bool {
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return s != "" && s[0] != '-' && s[len(s)-1] != '-'
}

// isInterface tells a name that the kernel takes for an interface. With "%d" in it,
// it takes another: the next that is free.
func isInterface(s string) bool {
	return s != "" && len(s) <= 15 && s != "." && s != ".." &&
		!strings.ContainsFunc(s, func(c rune) bool {
			return c == '/' || c == ':' || c == '%' || unicode.IsSpace(c) || unicode.IsControl(c)
		})
}

func isAddress(s string) bool {
	if strings.Contains(s, "/") {
		_, err := netip.ParsePrefix(s)
		return err == nil
	}
	a, err := netip.ParseAddr(s)
	return err == nil && a.Zone() == ""
}

// macLength is the number of bytes of a hardware address: 6, 8 or 20; 0 for none.
func macLength(s string) int {
	mac, _ := net.ParseMAC(s)
	return len(mac)
}
