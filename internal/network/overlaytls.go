package network

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"time"
)

// SecretTLS returns a TLS configuration derived from a secret, for both ends. The key pair of both ends follows from
// the secret, so that proof of the key is proof of the secret. Names and dates are not checked.
func SecretTLS(secret []byte) (*tls.Config, error) {
	key := ed25519.NewKeyFromSeed(Derive(secret, "tls"))
	public := key.Public().(ed25519.PublicKey)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth:         tls.RequireAnyClientCert,
		InsecureSkipVerify: true, // of names; the key is verified below
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) != 1 {
				return errors.New("network: no certificate")
			}
			theirs, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || !bytes.Equal(theirs, public) {
				return errors.New("network: the other end has another secret")
			}
			return nil
		},
		SessionTicketsDisabled: true,
	}, nil
}
