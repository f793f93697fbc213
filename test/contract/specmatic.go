package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// combinations bounds the requests that Specmatic makes of one set of keys. Every value of every key is among the
// first; without a bound it goes through all combinations of them, tens of thousands for some bodies.
const combinations = 16

// javaFlags bound the memory, and have Java neither compile a second time what it runs often nor collect garbage beside
// the program: a run is too short for that to pay.
var javaFlags = []string{"-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}

// specmatic lets Specmatic test the service at url in dir. Its error says only that it failed; the report has the rest.
func specmatic(ctx context.Context, jar, dir string, doc *document, url, key string) error {
	text, err := json.Marshal(doc.tree)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "openapi.json"), text, 0o600); err != nil {
		return err
	}
	settings, err := json.Marshal(map[string]any{
		"version":   2,
		"contracts": []any{map[string]any{"provides": []any{"./openapi.json"}}},
		"test": map[string]any{
			"resiliencyTests":            map[string]any{"enable": "all"},
			"maxTestRequestCombinations": combinations,
			"timeoutInMilliseconds":      (30 * time.Second).Milliseconds(),
		},
		"security": map[string]any{"OpenAPI": map[string]any{"securitySchemes": map[string]any{
			"ApiKeyAuth": map[string]any{"type": "apiKey", "value": key},
			"StreamAuth": map[string]any{"type": "apiKey", "value": standIn + "stream_token"},
		}}},
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "specmatic.json"), settings, 0o600); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "specmatic.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	args := slices.Concat(javaFlags, []string{"-jar", jar, "test", "--testBaseURL=" + url, "--junitReportDir=junit"})
	cmd := exec.CommandContext(ctx, "java", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Env = append(os.Environ(), "SPECMATIC_DISABLE_TELEMETRY=true")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("specmatic: %w; it says at the end:\n%s", err, tail(log, 2000))
	}
	return nil
}

// tail is the end of a file.
func tail(file *os.File, most int64) string {
	info, err := file.Stat()
	if err != nil {
		return err.Error()
	}
	size := min(most, info.Size())
	text := make([]byte, size)
	if _, err := file.ReadAt(text, info.Size()-size); err != nil && !errors.Is(err, io.EOF) {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}
