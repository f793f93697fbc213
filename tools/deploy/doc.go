// Package deploy checks what deploy/ ships, as far as that goes without the machines that it is for: the chart by
// Helm's own linter and Kubernetes' own types and schemas, the compose file by the library of Docker Compose, the unit
// by systemd. What alerts and dashboards show of a running service is tested in test/deploy.
package deploy
