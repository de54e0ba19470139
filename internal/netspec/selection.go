package netspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ParseSelections reads the networks annotation of a pod in either of its forms
// (multi-net-spec 4.1; contract 1.5): a JSON list of selection elements where the text
// contains any of '[', '{' and '"', else a comma list of [namespace/]name[@interface].
// Elements without a namespace get the pod's. An empty annotation selects nothing.
//
// Everything wrong in an element is reported at once; what several elements may not
// do together is the plan's business, for it knows the node's networks too. The selections beside problems are what could
// be read of every element, so that more that is wrong can be found; nothing may be
// attached then, which would be less than the pod asked for.
func ParseSelections(annotation, podNamespace string) ([]Selection, []Problem) {
	return parse(AnnotationNetworks, annotation, podNamespace)
}

// ParseDefaultNetwork reads the default-network annotation of a pod: the same two
// forms with exactly one element (contract 1.5). Problems name the annotation.
func ParseDefaultNetwork(annotation, defaultNamespace string) (Selection, []Problem) {
	selections, problems := parse(AnnotationDefaultNetwork, annotation, defaultNamespace)
	for i, p := range problems {
		if p.Element > 0 && p.Key != "" {
			problems[i].Wrong = fmt.Sprintf("%s in key %q", p.Wrong, p.Key)
		}
		problems[i].Key = AnnotationDefaultNetwork
	}
	if len(problems) == 0 && len(selections) != 1 {
		problems = []Problem{{
			Key: AnnotationDefaultNetwork, Wrong: fmt.Sprintf("found %d networks", len(selections)), Right: "exactly one network",
		}}
	}
	if len(problems) > 0 {
		return Selection{}, problems
	}
	return selections[0], nil
}

// maxElements bounds what one pod can make the node look up and attach. An
// annotation has room for a hundred thousand.
const maxElements = 256

func parse(key, annotation, namespace string) ([]Selection, []Problem) {
	elements, problem := split(key, annotation)
	if problem != nil {
		return nil, []Problem{*problem}
	}
	if len(elements) > maxElements {
		return nil, []Problem{{Key: key, Wrong: fmt.Sprintf("found %d networks", len(elements)), Right: fmt.Sprintf("at most %d", maxElements)}}
	}
	var selections []Selection
	var problems []Problem
	for i, raw := range elements {
		s, wrong := parseElement(i+1, raw, namespace)
		problems = append(problems, wrong...)
		selections = append(selections, s)
	}
	return selections, problems
}

const rightList = `a comma list such as "net-a, other/net-b@lan0", or a JSON list such as [{"name": "net-a"}]`

// split gives the elements of an annotation as JSON, whichever form it has.
func split(key, annotation string) ([]json.RawMessage, *Problem) {
	if strings.TrimSpace(annotation) == "" {
		return nil, nil
	}
	if !strings.ContainsAny(annotation, `[{"`) {
		return splitComma(annotation), nil
	}
	var elements []json.RawMessage
	err := json.Unmarshal([]byte(annotation), &elements)
	if err == nil {
		return elements, nil
	}
	p := Problem{Key: key, Wrong: "found " + Found([]byte(annotation)), Right: rightList}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		p.Wrong = fmt.Sprintf("is not valid JSON at byte %d: %v", syntax.Offset, syntax)
	} else if strings.TrimSpace(annotation)[0] == '{' {
		p.Right = "the object inside a list: [{…}]"
	}
	return nil, &p
}

// splitComma writes the elements of the short form as JSON, so that one decoder
// serves both. An empty namespace or interface counts as absent, as in v4.
func splitComma(annotation string) []json.RawMessage {
	var elements []json.RawMessage
	for item := range strings.SplitSeq(annotation, ",") {
		element := map[string]string{}
		name, ifName := item, ""
		if at := strings.LastIndexByte(item, '@'); at >= 0 { // an earlier one makes the name wrong
			name, ifName = item[:at], item[at+1:]
		}
		if namespace, rest, ok := strings.Cut(name, "/"); ok {
			element["namespace"], name = strings.TrimSpace(namespace), rest
		}
		element["name"], element["interface"] = strings.TrimSpace(name), strings.TrimSpace(ifName)
		raw, _ := json.Marshal(element) // strings always marshal
		elements = append(elements, raw)
	}
	return elements
}

// Named tells whether the element names a network: both parts are valid.
func (s Selection) Named() bool { return s.Name != "" && s.Namespace != "" }

// known is "namespace/name" where both are valid, else empty.
func (s Selection) known() string {
	if !s.Named() {
		return ""
	}
	return s.Ref().String()
}
