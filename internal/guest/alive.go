package guest

import "context"

// Answers waits until the agent of the client's VM answers, or ctx ends, and then returns ctx's cause. It returns
// another error if the Mux or the VM has ended.
func (c *Client) Answers(ctx context.Context) error {
	s, err := c.open("alive", "", nil)
	if err != nil {
		return err
	}
	defer s.Close()
	// No agent knows streams of this kind; its refusal is the answer.
	if _, err = s.Receive(ctx); err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
