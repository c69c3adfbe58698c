package guest

import "context"

// Answers waits until the agent of the client's VM answers, or ctx ends, and then returns its cause. Another error is that
// of a Mux or a VM that has ended.
func (c *Client) Answers(ctx context.Context) error {
	s, err := c.open("alive", "", nil)
	if err != nil {
		return err
	}
	defer s.Close()
	// No agent knows streams of this kind: that it says so is the answer.
	if _, err = s.Receive(ctx); err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
