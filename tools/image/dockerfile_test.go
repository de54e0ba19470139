package main

import (
	"os"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// instructions are those of a Dockerfile, one a line, its last stage only.
func instructions(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	var last []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "FROM ") {
			last = nil
		}
		if line != "" && line[0] != '#' && !strings.HasPrefix(line, "ARG ") {
			last = append(last, line)
		}
	}
	return last
}

// TestI3_ImageDockerfiles: a Dockerfile copies exactly the files that mkimage writes for
// its image, and sets what mkimage sets. (The digest of a base is not known to it.)
func TestI3_ImageDockerfiles(t *testing.T) {
	for _, f := range flavors("") {
		want := []string{"FROM ${BASE}", "COPY --from=build /rootfs/" + f.name + "${VARIANT}/ /"}
		b := &builder{version: "${VERSION}", commit: "${COMMIT}", date: "${DATE}", base: base{name: "${BASE}", named: true}}
		labels, err := b.labels(hardened(t, "amd64"), f)
		must(t, err)
		delete(labels, "base.digest")
		for _, key := range []string{"title", "source", "version", "revision", "created", "licenses", "base.name"} {
			want = append(want, `LABEL org.opencontainers.image.`+key+`="`+labels[key]+`"`)
			delete(labels, key)
		}
		if len(labels) != 0 {
			t.Errorf("labels %v are not looked for", labels)
		}
		want = append(want, `ENV PATH="${PATH:-`+usualPath+`}`+ourPath+`"`, "WORKDIR /", "USER 0:0", `ENTRYPOINT ["`+f.entrypoint+`"]`)
		file := path.Join("../../image", f.name+".Dockerfile")
		if diff := cmp.Diff(want, instructions(t, file)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
		text, err := os.ReadFile(file)
		must(t, err)
		if !strings.Contains(string(text), "\nRUN make image PLATFORMS=${TARGETPLATFORM} ROOTFS=/rootfs\n") {
			t.Errorf("%s does not build what it copies", file)
		}
	}
}
