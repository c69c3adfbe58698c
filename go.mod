module nearmetal

go 1.22

require (
	github.com/chromedp/cdproto v0.0.0-20240202021202-6d0b6a386732
	github.com/chromedp/chromedp v0.9.5
	github.com/cpuguy83/go-md2man/v2 v2.0.6
	github.com/digitalocean/go-libvirt v0.0.0-20241216201552-9fbdb61a21af
	github.com/go-fonts/liberation v0.3.1
	github.com/gophercloud/gophercloud/v2 v2.10.0
	github.com/klauspost/compress v1.17.11
	github.com/pierrec/lz4/v4 v4.1.22
	github.com/spf13/cobra v1.9.1
	github.com/spf13/pflag v1.0.7
	github.com/therootcompany/xz v1.0.1
	github.com/vishvananda/netlink v1.3.0
	github.com/vmware/govmomi v0.48.1
	golang.org/x/image v0.11.0
	golang.org/x/sync v0.11.0
	golang.org/x/sys v0.30.0
	golang.org/x/term v0.29.0
	gonum.org/v1/plot v0.14.0
	gopkg.in/yaml.v3 v3.0.1
	libvirt.org/go/libvirtxml v1.11010.0
)

require (
	git.sr.ht/~sbinet/gg v0.5.0 // indirect
	github.com/campoy/embedmd v1.0.0 // indirect
	github.com/chromedp/sysutil v1.0.0 // indirect
	github.com/go-latex/latex v0.0.0-20230307184459-12ec69307ad9 // indirect
	github.com/gobwas/httphead v0.1.0 // indirect
	github.com/gobwas/pool v0.2.1 // indirect
	github.com/gobwas/ws v1.3.2 // indirect
	github.com/golang/freetype v0.0.0-20170609003504-e2365dfdc4a0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/josharian/intern v1.0.0 // indirect
	github.com/mailru/easyjson v0.7.7 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/russross/blackfriday/v2 v2.1.0 // indirect
	github.com/vishvananda/netns v0.0.4 // indirect
	golang.org/x/crypto v0.33.0 // indirect
	golang.org/x/text v0.22.0 // indirect
	gopkg.in/yaml.v2 v2.4.0 // indirect
)
