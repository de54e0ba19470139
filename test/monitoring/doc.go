// Package monitoring holds what deploy/monitoring promises: the rules and the dashboard
// use metrics that the daemon has, each alert fires when it should and at no other time,
// and has its runbook. The package has tests only; test/deploy holds the manifests.
package monitoring
