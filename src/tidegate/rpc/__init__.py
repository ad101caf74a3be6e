"""Remote calls to devices behind gateways: any number of routers, and every reply reaches its caller."""
