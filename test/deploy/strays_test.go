package deploy

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// TestC1_12DeployStrays: the right to evict, and nothing else; the chart gives it with the
// key that needs it.
func TestC1_12DeployStrays(t *testing.T) {
	want := installation(t, "thick")
	want.role.Rules = append(want.role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}})
	sameInstallation(t, "strays", want, composed(t, []string{"thick"}, "strays"))
	got := charted(t, "config: {strays: restart}")
	same(t, "the key", any("restart"), got.keys(t)["strays"])
	got.config = want.config
	sameInstallation(t, "the chart", want, got)
}
