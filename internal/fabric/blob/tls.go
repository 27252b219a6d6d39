package blob

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"brood/internal/base/errs"
)

func clientTLS(c ClientConfig) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, errs.New(errs.InvalidArgument, "the certificates to trust: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errs.New(errs.InvalidArgument, "%s has no certificate in PEM form", c.CA)
		}
	}
	if c.Cert != "" || c.Key != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, errs.New(errs.InvalidArgument, "the client's certificate: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}
