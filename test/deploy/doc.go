// Package deploy tries what deploy/ ships for whoever watches the service: that each alert fires when its fault happens
// to real processes, which a real Prometheus scrapes, and that each panel of a dashboard then has something to show.
// What is checked without a process (charts, compose files, units) is tested in tools/deploy.
package deploy
