package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"

	"github.com/google/uuid"
)

// service is the service as a process, with its platform, and a client with an admin key.
type service struct {
	url, key   string
	http       *http.Client
	pid        int
	credential string
	// kek is the key-encryption key, org the organization of the key, domain the account of the credential.
	kek      string
	org      uuid.UUID
	domain   string
	platform *child
	process  *exec.Cmd
	target   *target
}

// call sends a request under /v1 and decodes the answer into out, unless that is nil.
func (s *service) call(ctx context.Context, method, path string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, s.url+"/v1"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("X-API-Key", s.key)
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := s.http.Do(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return err
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s answered %d: %s", method, path, res.StatusCode, text)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}
