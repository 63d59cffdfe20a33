"""Looking at slots and acting on them: service, routes and JSON on the server's side, client and tables on the other."""
