package cli

import "flowlane/internal/app"

// front is the flags of how clients reach the API.
type front struct {
	TLSCert   string `name:"tls-cert" env:"FLOWLANE_TLS_CERT" help:"File with the certificate of the API and its chain, in PEM: it then speaks TLS alone, 1.2 or newer. It is read again when it changes. Needs the next one."`
	TLSKey    string `name:"tls-key" env:"FLOWLANE_TLS_KEY" help:"File with the private key of that certificate, in PEM."`
	PublicURL string `name:"public-url" env:"FLOWLANE_PUBLIC_URL" help:"Where people reach the API, as https://flows.example.com: issuers of tokens send them back there. Default: the address that it listens on."`

	Origins []string `name:"cors-origin" env:"FLOWLANE_CORS_ORIGIN" help:"Origin of pages whose scripts may call the API from a browser, exactly as https://console.example.com; none by default." placeholder:"ORIGIN"`
}

func (f front) config() app.Front {
	return app.Front{CertFile: f.TLSCert, KeyFile: f.TLSKey, Origins: f.Origins}
}
