package spec

import "encoding/json"

// Clone returns a copy of c that shares nothing with it.
func Clone(c *Cluster) (*Cluster, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	var out Cluster
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, err
	}
	return &out, nil
}
