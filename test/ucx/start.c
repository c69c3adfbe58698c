/* Starts UCX, and ends. */
#include <ucp/api/ucp.h>

int main(void)
{
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG };
	ucp_context_h context;

	if (ucp_init(&params, NULL, &context) != UCS_OK)
		return 1;
	ucp_cleanup(context);
	return 0;
}
