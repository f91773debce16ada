package kubeconfig

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxFile is the size of the largest kubeconfig file, in bytes.
const MaxFile = 8 << 20

// Paths returns the files that kubectl would read: the explicit one alone when it
// is not empty, else those of KUBECONFIG, else ~/.kube/config.
func Paths(explicit string, getenv func(string) string) []string {
	if explicit != "" {
		return []string{explicit}
	}
	paths := slices.DeleteFunc(filepath.SplitList(getenv("KUBECONFIG")), func(path string) bool { return path == "" })
	if home := getenv("HOME"); getenv("KUBECONFIG") == "" && home != "" {
		paths = append(paths, filepath.Join(home, ".kube", "config"))
	}
	return paths
}

// Load reads and merges the files that [Paths] returns for os.Getenv. An explicit
// file must exist; of the others, at least one must.
func Load(explicit string) (*Config, error) {
	paths := Paths(explicit, os.Getenv)
	config := &Config{Clusters: map[string]*Cluster{}, Users: map[string]*AuthInfo{}, Contexts: map[string]*Context{}}
	for _, path := range paths {
		data, err := read(path)
		if errors.Is(err, fs.ErrNotExist) && explicit == "" {
			continue
		}
		if err != nil {
			return nil, err
		}
		file, err := Parse(path, data)
		if err != nil {
			return nil, err
		}
		config.Files = append(config.Files, path)
		if err := config.add(path, file); err != nil {
			return nil, err
		}
	}
	if len(config.Files) == 0 {
		return nil, fmt.Errorf("there is no kubeconfig: none of %q: %w", paths, fs.ErrNotExist)
	}
	return config, nil
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxFile+1))
}

// File is the content of one file.
type File struct {
	CurrentContext string          `yaml:"current-context"`
	Clusters       []NamedCluster  `yaml:"clusters"`
	Users          []NamedAuthInfo `yaml:"users"`
	Contexts       []NamedContext  `yaml:"contexts"`
}

// NamedCluster is an entry of a file.
type NamedCluster struct {
	Name    string   `json:"name" yaml:"name"`
	Cluster *Cluster `json:"cluster" yaml:"cluster"`
}

// NamedAuthInfo is an entry of a file.
type NamedAuthInfo struct {
	Name     string    `json:"name" yaml:"name"`
	AuthInfo *AuthInfo `json:"user" yaml:"user"`
}

// NamedContext is an entry of a file.
type NamedContext struct {
	Name    string   `json:"name" yaml:"name"`
	Context *Context `json:"context" yaml:"context"`
}

// yamlLine finds the line in the YAML library's errors, "yaml: line 3: text".
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// Parse reads one file, YAML or JSON; name stands for it in errors, which are
// "name:line: fault" where the line is known. Unknown words belong to other
// programs and are ignored; repeated words and names are errors, because readers
// disagree about which one counts. No error shows a value: it may be a secret.
func Parse(name string, data []byte) (*File, error) {
	if len(data) > MaxFile {
		return nil, fmt.Errorf("%s: longer than %d bytes", name, MaxFile)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, located(name, err)
	}
	file := new(File)
	if err := root.Decode(file); err != nil {
		return nil, located(name, err)
	}
	if err := file.unique(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return file, nil
}

// valueInError is how the YAML library quotes what it could not decode.
var valueInError = regexp.MustCompile("`[^`]*`")

func located(name string, err error) error {
	var kinds *yaml.TypeError
	if errors.As(err, &kinds) && len(kinds.Errors) > 0 {
		err = errors.New("yaml: " + kinds.Errors[0])
	}
	text := strings.TrimSpace(err.Error())
	text = valueInError.ReplaceAllString(text, "a value")
	if found := yamlLine.FindStringSubmatch(text); found != nil {
		if text = text[len(found[0]):]; found[1] != "" {
			return fmt.Errorf("%s:%s: %s", name, found[1], text)
		}
	}
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		return fmt.Errorf("%s:%s", name, rest)
	}
	return fmt.Errorf("%s: %s", name, text)
}

// unique rejects two entries of one name, as clientcmd does.
func (f *File) unique() error {
	seen := map[string]bool{}
	twice := func(kind, name string) error {
		if seen[kind+" "+name] {
			return fmt.Errorf("there are two %ss named %.80q", kind, name)
		}
		seen[kind+" "+name] = true
		return nil
	}
	var all []error
	for _, c := range f.Clusters {
		all = append(all, twice("cluster", c.Name))
	}
	for _, u := range f.Users {
		all = append(all, twice("user", u.Name))
	}
	for _, c := range f.Contexts {
		all = append(all, twice("context", c.Name))
	}
	return errors.Join(all...)
}

// add merges a file into the configuration. Existing entries stay.
func (c *Config) add(path string, file *File) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	base := filepath.Dir(path)
	if c.CurrentContext == "" && file.CurrentContext != "" {
		c.CurrentContext, c.CurrentOrigin = file.CurrentContext, path
	}
	for _, n := range file.Clusters {
		entry := cmp.Or(n.Cluster, new(Cluster)) // one that has only a name
		resolve(base, &entry.CertificateAuthority)
		entry.Origin = path
		keep(c.Clusters, n.Name, entry)
	}
	for _, n := range file.Users {
		entry := cmp.Or(n.AuthInfo, new(AuthInfo))
		resolve(base, &entry.ClientCertificate, &entry.ClientKey, &entry.TokenFile)
		if entry.Exec != nil && strings.ContainsRune(entry.Exec.Command, filepath.Separator) {
			resolve(base, &entry.Exec.Command)
		}
		entry.Origin = path
		keep(c.Users, n.Name, entry)
	}
	for _, n := range file.Contexts {
		entry := cmp.Or(n.Context, new(Context))
		entry.Origin = path
		keep(c.Contexts, n.Name, entry)
	}
	return nil
}

func keep[T any](entries map[string]*T, name string, entry *T) {
	if entries[name] == nil {
		entries[name] = entry
	}
}

// resolve makes paths that are relative to base absolute.
func resolve(base string, paths ...*string) {
	for _, path := range paths {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(base, *path)
		}
	}
}
