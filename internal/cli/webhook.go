package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"flowlane/internal/cli/remote"
	"flowlane/internal/trigger/webhook"
)

// varSecret is the variable that holds the signing secret where no other is named.
const varSecret = "FLOWLANE_WEBHOOK_SECRET"

type webhookSend struct {
	folder
	output

	File        string `arg:"" help:"File to send as it is; - is standard input."`
	URL         string `name:"url" required:"" help:"Address of the webhook, or its receive_url as it was given, on the server of FLOWLANE_URL."`
	Server      string `name:"server" env:"FLOWLANE_URL" help:"Root of that server. Default: the development server of the data folder."`
	SecretEnv   string `name:"secret-env" xor:"secret" placeholder:"NAME" help:"Environment variable with the signing secret. Default: FLOWLANE_WEBHOOK_SECRET."`
	SecretFile  string `name:"secret-file" xor:"secret" type:"path" help:"File with the signing secret."`
	ID          string `name:"id" help:"webhook-id: the delivery's idempotency key. Default: a random one."`
	ContentType string `name:"content-type" help:"Content-Type. Default: by the name of the file."`
}

// Run sends one delivery.
func (c *webhookSend) Run(ctx context.Context, p *process) error {
	address, err := c.address()
	if err != nil {
		return err
	}
	secret, err := c.secret()
	if err != nil {
		return err
	}
	body, err := c.body()
	if err != nil {
		return err
	}
	d := remote.Delivery{URL: address, Secret: secret, ID: c.ID, ContentType: c.contentType(), Body: body}
	if d.ID == "" {
		d.ID = "msg_" + rand.Text()
	}
	sent, err := remote.Deliver(ctx, d)
	if err != nil {
		return fmt.Errorf("send %s, attempt %d: %w", d.ID, sent.Attempts, err)
	}
	return c.print(p, sent, func(w io.Writer) {
		fmt.Fprintf(w, "%d: delivery %s of %s\n", sent.Status, sent.DeliveryID, sent.MessageID)
	})
}

// address is where to post to: a receive_url is a path below /v1 of a server.
func (c *webhookSend) address() (string, error) {
	address := c.URL
	if strings.HasPrefix(address, "/") {
		server, err := c.setting(c.Server, varURL)
		if err != nil {
			return "", err
		}
		if server == "" {
			return "", fmt.Errorf("--url is a path, and no server is named: set %s, or write the whole address", varURL)
		}
		address = strings.TrimSuffix(strings.TrimRight(server, "/"), "/v1") + "/v1" + strings.TrimPrefix(address, "/v1")
	}
	if !remote.IsAddress(address) {
		return "", errors.New(
			"--url is no address: write http://HOST/v1 and the receive_url, or that alone; " +
				"without a user or a password")
	}
	return address, nil
}

// secret reads the signing secret. What is wrong with it is said without it.
func (c *webhookSend) secret() (string, error) {
	if c.SecretFile != "" {
		text, err := os.ReadFile(c.SecretFile)
		if err != nil && strings.Contains(c.SecretFile, "whsec_") {
			return "", errors.New(
				"the file of --secret-file is not there: name one that holds the secret, not the secret itself")
		}
		if err != nil {
			return "", fmt.Errorf("read the signing secret: %w", err)
		}
		return strings.TrimSpace(string(text)), nil
	}
	name := c.SecretEnv
	if name == "" {
		name = varSecret
	}
	if secret := strings.TrimSpace(os.Getenv(name)); secret != "" {
		return secret, nil
	}
	if c.SecretEnv != "" {
		return "", errors.New("the variable of --secret-env is not set: " +
			"name one that holds the secret, not the secret itself")
	}
	return "", fmt.Errorf("no signing secret: set %s, or name a variable with "+
		"--secret-env or a file with --secret-file",
		varSecret)
}

// body reads what to send, as far as a receiver takes it.
func (c *webhookSend) body() ([]byte, error) {
	var from io.Reader = os.Stdin
	if c.File != "-" {
		file, err := os.Open(c.File)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		from = file
	}
	body, err := io.ReadAll(io.LimitReader(from, webhook.MaxBody+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", c.File, err)
	}
	if len(body) > webhook.MaxBody {
		return nil, fmt.Errorf("%s is larger than %d bytes, which is all that a webhook takes", c.File, webhook.MaxBody)
	}
	return body, nil
}

// contentTypes is what files are by their names.
var contentTypes = map[string]string{
	".json": "application/json", ".xml": "application/xml", ".txt": "text/plain; charset=utf-8",
	".form": "application/x-www-form-urlencoded",
}

func (c *webhookSend) contentType() string {
	if c.ContentType != "" {
		return c.ContentType
	}
	if c.File == "-" {
		return contentTypes[".json"]
	}
	if t, ok := contentTypes[strings.ToLower(filepath.Ext(c.File))]; ok {
		return t
	}
	return "application/octet-stream"
}
