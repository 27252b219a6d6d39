package image

// tops are the folders of this machine that the host image shows, read-only.
// On most machines some are symlinks into others and stay symlinks.
var tops = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "opt"}

// etc lists what of /etc is copied, by path or pattern: what programs need to
// find names, libraries, certificates and their own defaults. Never here:
// passwords (shadow, gshadow), keys (ssh, ssl/private), rights (sudoers,
// pam.d), and settings that people put tokens into (environment, gitconfig,
// npmrc, pip.conf, maven). Whatever not everybody may read is left out too.
var etc = []string{
	"passwd", "group", "nsswitch.conf", "shells", "login.defs",
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld-musl-*.path",
	"localtime", "timezone", "locale.alias", "locale.conf", "locale.gen", "default/locale",
	"ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf", "ssl/ct_log_list.cnf", "ca-certificates", "ca-certificates.conf",
	"pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "pki/ca-trust/extracted", "crypto-policies",
	"alternatives", "mime.types", "magic", "magic.mime", "protocols", "services", "rpc", "networks", "host.conf", "gai.conf", "ethertypes",
	"os-release", "debian_version", "lsb-release", "redhat-release", "system-release", "alpine-release", "issue",
	"terminfo", "inputrc", "profile", "profile.d", "bash.bashrc", "bashrc", "zshrc", "zsh",
	"fonts", "python*", "perl", "java", "java-*", "ruby", "php", "R", "vim", "nanorc", "xml", "sgml", "glvnd", "OpenCL",
}

// never are names that are left out wherever they are, whatever the list says.
var never = []string{
	"shadow*", "gshadow*", "*.key", "private", "*password*", "*secret*", "*token*", "*credential*", "*.netrc", "id_*", ".*",
}

// bare are the folders that every sandbox has, besides those that are shown.
var bare = []struct {
	path string
	mode uint32
}{
	{"dev", 0o755}, {"dev/shm", 0o1777}, {"etc", 0o755}, {"home", 0o755}, {"media", 0o755}, {"mnt", 0o755}, {"proc", 0o555},
	{"root", 0o700}, {"run", 0o755}, {"srv", 0o755}, {"sys", 0o555}, {"tmp", 0o1777}, {"var", 0o755}, {"var/cache", 0o755},
	{"var/lib", 0o755}, {"var/local", 0o755}, {"var/log", 0o755}, {"var/opt", 0o755}, {"var/spool", 0o755}, {"var/tmp", 0o1777},
	{".brood", 0o755}, {".brood/bin", 0o755},
}

// links are the symlinks that every sandbox has.
var links = map[string]string{"var/run": "/run", "var/lock": "/run/lock", "etc/mtab": "/proc/self/mounts"}

// fresh are files that every sandbox has as its own; the guest program writes
// what differs between two of them.
var fresh = map[string]string{
	"etc/hostname":    "sandbox\n",
	"etc/hosts":       "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n",
	"etc/machine-id":  "",
	"etc/resolv.conf": "",
}

// Bounds on what is copied: certificates are the largest, about 1 MiB.
const (
	maxCopy  = 4 << 20
	maxTotal = 64 << 20
)
