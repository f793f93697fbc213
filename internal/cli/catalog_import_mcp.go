package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	catalogmcp "flowlane/internal/platform/catalog/mcp"
	"flowlane/internal/platform/catalog/revision"
)

const (
	// listTimeout bounds the listing of a server's tools.
	listTimeout = time.Minute
	// maxListed bounds in bytes what a server says at once.
	maxListed = 8 << 20
)

type importMCP struct {
	output
	importFile

	URL        string   `name:"url" required:"" placeholder:"URL" help:"Address of the server's endpoint (streamable HTTP)."`
	PlatformID string   `name:"platform-id" placeholder:"SLUG" help:"Id of the platform; by default made of the server's name."`
	Token      string   `env:"FLOWLANE_MCP_TOKEN" placeholder:"TOKEN" help:"Bearer token for listing the tools. It is not written."`
	Header     []string `sep:"none" placeholder:"NAME:VALUE" help:"Header for listing the tools; may be given several times. It is not written."`
	Auth       string   `enum:",none,api_key,basic_auth,jwt,oauth2" default:"" placeholder:"METHOD" help:"How calls authenticate: none, api_key (a bearer token), basic_auth, jwt or oauth2. Default: api_key with --token or --header, else none."`
}

type importMCPFacts struct {
	PlatformID string             `json:"platform_id"`
	File       string             `json:"file"`
	Written    bool               `json:"written"`
	Actions    int                `json:"actions"`
	Changes    []revision.Change  `json:"changes"`
	Report     []catalogmcp.Entry `json:"report"`
}

// Run lists the tools of a server, checks that the platform which they make loads, and writes it.
func (c *importMCP) Run(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	tools, server, err := c.tools(ctx)
	if err != nil {
		return fmt.Errorf("list the tools of %s: %w", c.URL, err)
	}
	if c.Auth == "" {
		if c.Auth = "none"; c.Token != "" || len(c.Header) > 0 {
			c.Auth = "api_key"
		}
	}
	result, err := catalogmcp.Import(tools, catalogmcp.Options{PlatformID: c.PlatformID, Endpoint: c.URL, Auth: c.Auth,
		Server: server})
	if err != nil {
		return err
	}
	if c.Out == "" && c.JSON {
		c.Out = result.PlatformID + ".yaml"
	}
	changes, written, err := c.put(p, result.YAML)
	if err != nil {
		return err
	}
	if c.JSON {
		return c.print(p, importMCPFacts{result.PlatformID, c.Out, written, result.Actions,
			append([]revision.Change{}, changes...), append([]catalogmcp.Entry{}, result.Report...)}, nil)
	}
	for _, e := range result.Report {
		fmt.Fprintf(p.stderr, "%s: %s\n", e.Tool, e.Message)
	}
	fmt.Fprintf(p.stderr, "Platform %s: %d actions\n", result.PlatformID, result.Actions)
	c.changes(p, changes, written)
	return nil
}

// tools asks the server, page by page.
func (c *importMCP) tools(ctx context.Context) (out []*mcp.Tool, server *mcp.Implementation, err error) {
	header := http.Header{}
	if c.Token != "" {
		header.Set("Authorization", "Bearer "+c.Token)
	}
	for _, h := range c.Header {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return nil, nil, errors.New("--header must have the form NAME:VALUE")
		}
		header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "flowlane", Version: "1"}, nil)
	// A redirect would take the token to another address.
	web := &http.Client{Transport: withHeader{header}, CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}
	transport := &mcp.StreamableClientTransport{Endpoint: c.URL, HTTPClient: web, DisableStandaloneSSE: true,
		MaxEventSize: maxListed}
	session, err := client.Connect(ctx, transport, nil)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			return nil, nil, err
		}
		if out = append(out, tool); len(out) > catalogmcp.MaxTools {
			return nil, nil, fmt.Errorf("there are more than %d", catalogmcp.MaxTools)
		}
	}
	return out, session.InitializeResult().ServerInfo, nil
}

// withHeader adds headers to each request.
type withHeader struct{ header http.Header }

func (t withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range t.header {
		r.Header[name] = values
	}
	return http.DefaultTransport.RoundTrip(r)
}
