package deploy

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// TestC1_12DeployClaimStatus: the right to write there, and nothing else; the chart gives
// it with the key that needs it.
func TestC1_12DeployClaimStatus(t *testing.T) {
	want := installation(t, "thick")
	want.role.Rules = append(want.role.Rules,
		rbacv1.PolicyRule{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims/status"}, Verbs: []string{"patch"}},
		rbacv1.PolicyRule{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims/driver"}, Verbs: []string{"associated-node:patch"}})
	sameInstallation(t, "claim-status", want, composed(t, []string{"thick"}, "claim-status"))
	got := charted(t, "config: {claimStatus: true}")
	same(t, "the key", any(true), got.keys(t)["claimStatus"])
	got.config = want.config
	sameInstallation(t, "the chart", want, got)
}
